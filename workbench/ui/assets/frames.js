// Ends an animation that Gradio leaves behind: its start-up loader counts the seconds of waiting, frame by frame, and goes
// on doing so when it is gone, which takes a page that nobody touches a tenth of a core.
//
// A classic script, in the page's head before Gradio's own. Once the page is opened no loader is shown any more.
{
  const next = globalThis.requestAnimationFrame;
  const countsSeconds = /^\(\)=>.*performance\.now\(\).*\/1e3/;
  globalThis.requestAnimationFrame = (callback) => {
    const opened = document.documentElement.dataset.opened !== undefined;
    return opened && countsSeconds.test(callback.toString()) ? 0 : next(callback);
  };
}
