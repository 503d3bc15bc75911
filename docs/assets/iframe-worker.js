// Browsers start no workers for pages that are opened as files. There, the search runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true, title: "Search" });
      document.documentElement.append(this.frame);
      const inner = this.frame.contentWindow;
      const load = (url) => new Promise((done) => {
        const script = Object.assign(inner.document.createElement("script"), { src: url, onload: done });
        inner.document.head.append(script);
      });
      inner.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => load(url)), Promise.resolve());
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(new URL(address, location.href).href);
    }

    postMessage(data) {
      const inner = this.frame.contentWindow;
      this.ready.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
