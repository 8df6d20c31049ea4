// Back and Forward between tabs: each tab that is shown is an entry of the browser's history, which remembers its name;
// going back clicks its button.

const TABS = "#pages [role=tab][id$='-tab-button']";

/** @param {string} tab the tab of the new entry @param {string} before that of the present one */
export function newEntry(tab, before = tab) {
  history.replaceState({ ...history.state, tab: before }, "");
  history.pushState({ tab }, "", location.href);
}

/** Makes an entry of each tab that is shown, and shows that of an entry that is gone back or forward to. */
export function followHistory() {
  let going = false; // through the history
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest(TABS) : null;
    const before = document.querySelector(`${TABS}[aria-selected=true]`);
    if (!button || going || !before || before === button) return;
    newEntry(button.id, before.id);
  }, { capture: true });
  addEventListener("popstate", (event) => {
    const button = event.state?.tab && document.getElementById(event.state.tab);
    if (!button || button.getAttribute("aria-selected") === "true") return;
    going = true;
    button.click();
    going = false;
  });
}
