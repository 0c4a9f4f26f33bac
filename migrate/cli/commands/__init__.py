"""The commands as they are declared: arguments, options and help. What does the work is imported when it runs."""
