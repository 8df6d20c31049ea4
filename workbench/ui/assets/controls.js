// Small behaviour of Gradio's own controls: shortcuts, folding on a narrow screen, and code editors.

import { el } from "../../views/dom.js";

const COLUMNS = "#controls, #train-controls";

/** Listens for Ctrl+Enter, for Tab in a dropdown, and for the editor's keys. */
export function listenToControls() {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    const button = /** @type {HTMLButtonElement | null} */ (document.querySelector("#sample"));
    if (!button || button.disabled || button.offsetParent === null) return;
    event.preventDefault();
    event.stopPropagation(); // the code editor would take it for a new line
    button.click();
  }, { capture: true });
  // Gradio's dropdowns open their list at every key but a moment later, when Tab has left them already.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Tab" && event.target instanceof Element && event.target.matches("[role=combobox]")) {
      event.stopPropagation();
    }
  }, { capture: true });
  // A list that Escape has closed opens as its field gets the focus, which a click on it alone does not bring.
  document.addEventListener("pointerdown", ({ target }) => {
    const isOver = target instanceof HTMLElement && target === document.activeElement;
    if (isOver && target.matches("[role=combobox][aria-expanded=false]")) target.blur();
  }, { capture: true });
  // In the editor, Escape is Done, and Ctrl+S saves no page: what is typed is scored at once.
  document.addEventListener("keydown", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest("#reward-editor")) return;
    if (event.key === "Escape") document.getElementById("editor-done")?.click();
    else if (event.key === "s" && (event.ctrlKey || event.metaKey)) event.preventDefault();
  });
}

/** Tidies the controls that there are, and those that Gradio draws later. */
export function watchControls() {
  const style = document.head.appendChild(el("style"));
  const tidy = () => {
    for (const column of document.querySelectorAll(COLUMNS)) foldable(column);
    for (const editor of document.querySelectorAll(".cm-content:not([tabindex])")) tidyEditor(editor, style);
    // Chromium stops at whatever scrolls; a list that closes as it is left would take the focus along.
    for (const list of document.querySelectorAll("[role=listbox]:not([tabindex])")) list.setAttribute("tabindex", "-1");
  };
  // Charts, texts that change and a group's drawing bring no controls, and take none away.
  const drawn = (/** @type {MutationRecord[]} */ records) =>
    records.some(({ target, addedNodes, removedNodes }) =>
      !(target instanceof Element && target.closest(".wh")) &&
      [...addedNodes, ...removedNodes].some((node) => node instanceof HTMLElement)
    );
  const observer = new MutationObserver((records) => drawn(records) && tidy());
  observer.observe(document.body, { childList: true, subtree: true });
  tidy();
}

/**
 * On a narrow screen the group, or the run, comes first: the controls fold down to the buttons, until asked for.
 * @param {Element} column gets a function `fold`
 */
function foldable(column) {
  if (column.querySelector(".unfold")) return;
  const button = el("button", { type: "button", class: "unfold" });
  const unfold = (/** @type {boolean} */ open) => {
    column.classList.toggle("open", open);
    button.textContent = open ? "Hide controls" : "Show controls";
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => unfold(!column.classList.contains("open")));
  unfold(false);
  Object.assign(column, { fold: () => unfold(false) });
  column.prepend(button);
}

/**
 * Makes an editor's text a stop of the Tab key, and its colours, which are too pale on white, darker in the light theme.
 * The classes have names made up as the page loads, so they are found by the rules that colour them.
 * @param {Element} editor @param {HTMLStyleElement} style
 */
function tidyEditor(editor, style) {
  editor.setAttribute("tabindex", "0");
  const sheets = [...document.styleSheets, ...document.adoptedStyleSheets];
  const rules = sheets.filter((sheet) => sheet.ownerNode !== style && !sheet.href).flatMap((
    sheet,
  ) => [...sheet.cssRules]);
  style.textContent = rules.flatMap((rule) => {
    if (!(rule instanceof CSSStyleRule) || !/^\.\u037c\w+$/.test(rule.selectorText) || !rule.style.color) return [];
    return [`body:not(.dark) ${rule.selectorText} { color: color-mix(in srgb, ${rule.style.color} 60%, black); }`];
  }).join("\n");
}
