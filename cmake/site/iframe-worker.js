// SPDX-License-Identifier: BSD-3-Clause
// A browser starts no worker for a page that it has read from the file system, and the search of the site runs in
// one. There, a hidden frame takes the worker's place: it runs the same script and exchanges the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = (this.inner = frame.contentWindow);
      const deliver = (target, data) => target.dispatchEvent(new MessageEvent("message", { data }));
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      // A worker loads scripts and goes on when they are there: the search uses the promise that this returns.
      inner.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
      this.load(String(url)).then(() => {
        this.deliver = (data) => deliver(inner, data);
        this.waiting.splice(0).forEach(this.deliver);
      });
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.inner.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = () => resolve();
        script.onerror = reject;
        this.inner.document.body.append(script);
      });
    }

    postMessage(data) {
      if (this.deliver) this.deliver(data);
      else this.waiting.push(data);
    }

    terminate() {}
  };
}
