// Runs the worker of the search in a frame where the site is opened from disk: browsers start no worker there.
// A shorter form of https://github.com/squidfunk/iframe-worker (MIT), which the theme would load from another server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write(
        `<script>postMessage = message => parent.postMessage(message, "*")</script><script src="${url}"></script>`,
      );
      inside.document.close();
      this.loaded = new Promise((resolve) => (inside.onload = resolve));
      addEventListener("message", (event) => {
        if (event.source === inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
