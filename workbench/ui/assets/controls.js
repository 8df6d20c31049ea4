// Small behaviour of Gradio's own controls: shortcuts, folding on a narrow screen, and code editors.

import { el } from "../../views/dom.js";

const COLUMNS = "#controls, #train-controls";

/** Listens for Ctrl+Enter, for Tab in a dropdown, and for clicks that open a reward's code. */
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
  // A reward's code is folded away until asked for; the editor itself stays, with its cursor.
  document.addEventListener("click", (event) => {
    const slot = event.target instanceof Element && event.target.closest(".slot-edit")?.closest(".slot");
    if (!slot) return;
    slot.classList.toggle("open");
    labelEdit(slot);
  });
}

/** Tidies the controls that there are, and those that Gradio draws later. */
export function watchControls() {
  const style = document.head.appendChild(el("style"));
  const tidy = () => {
    for (const column of document.querySelectorAll(COLUMNS)) foldable(column);
    for (const editor of document.querySelectorAll(".cm-content:not([tabindex])")) tidyEditor(editor, style);
    for (const slot of document.querySelectorAll(".slot")) labelEdit(slot);
  };
  // Charts and texts that change bring no controls.
  const drawn = (/** @type {MutationRecord[]} */ records) =>
    records.some((record) => [...record.addedNodes].some((node) => node instanceof HTMLElement));
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

/** @param {Element} slot Says on a reward's edit button whether its code is open. */
function labelEdit(slot) {
  const button = slot.querySelector(".slot-edit");
  const open = String(slot.classList.contains("open"));
  if (button && button.getAttribute("aria-expanded") !== open) button.setAttribute("aria-expanded", open);
}
