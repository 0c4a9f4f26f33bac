from stitch_worlds import make_world  # noqa: F401 - a fixture of the tests here
