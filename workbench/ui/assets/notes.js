// Messages beside controls, and lists of facts.

/** @typedef {{ rows: [string, string][], kind: string }} FactsPayload */
/** @import { NotePayload, SaidPayload } from "../../views/payloads.d.ts" */
/** @import { Handles } from "./payloads.js" */

import { el } from "../../views/dom.js";
import { follow, link } from "./widget.js";

/** @param {Handles} handles A sentence beside a control, which may highlight a line of a code editor. */
export function note(handles) {
  const mark = new LineMark();
  /** @type {string[]} */
  let marked = [];
  follow(handles, (root, /** @type {NotePayload | null} */ value) => {
    mark.set(value?.editor ?? "", value?.line ?? 0);
    for (const id of marked) markWrong(id, false);
    marked = value?.fields ?? [];
    for (const id of marked) markWrong(id, true);
    drawNote(root, value);
    if (value?.action) root.append(link(value.action, () => handles.trigger("apply", {})));
  });
}

/** @param {HTMLElement} root @param {SaidPayload | null} value */
export function drawNote(root, value) {
  root.className = `drawn ${value ? value.level : "none"}`;
  root.setAttribute("role", value?.level === "error" ? "alert" : "status");
  root.replaceChildren();
  if (!value) return;
  root.append(el("p", { title: value.level === "plain" ? value.text : null }, value.text));
  if (value.detail) root.append(el("pre", {}, value.detail));
}

/** @param {string} id elem_id of a field @param {boolean} wrong Whether its value was refused. A fold that it is in opens. */
function markWrong(id, wrong) {
  const field = document.getElementById(id);
  field?.classList.toggle("wrong", wrong);
  for (const input of field?.querySelectorAll("input, textarea, select") ?? []) {
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
  const fold = field?.closest("details");
  if (fold && wrong) fold.open = true;
}

/** @param {Handles} handles A list of terms. */
export function facts(handles) {
  follow(handles, (root, /** @type {FactsPayload | null} */ value) => {
    const rows = (value?.rows ?? []).flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]);
    root.dataset.kind = value?.kind ?? "";
    root.replaceChildren(...(value ? [el("dl", { class: "facts" }, ...rows)] : []));
  });
}

/**
 * Highlights a line of a code editor, which has no marks of its own, by a style rule for the line's place among those on
 * screen: the editor draws only lines in sight and would undo a class of ours. The line is found by its number in the
 * gutter, and again after each scroll.
 */
export class LineMark {
  constructor() {
    this.style = document.head.appendChild(el("style"));
    this.editor = "";
    this.line = 0;
    this.frame = 0;
    const soon = () => this.soon();
    document.addEventListener("scroll", soon, { capture: true, passive: true });
    document.addEventListener("click", soon); // an editor that was folded away has no places
    this.drawn = new MutationObserver(soon);
  }

  /** @param {string} editor elem_id @param {number} line from 1, or 0 for none */
  set(editor, line) {
    this.drawn.disconnect();
    this.editor = line ? editor : "";
    this.line = line;
    this.style.textContent = "";
    const box = this.editor ? document.getElementById(this.editor) : null;
    if (box) this.drawn.observe(box, { childList: true, subtree: true });
    this.soon();
  }

  soon() {
    if (!this.editor) return;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.place());
  }

  place() {
    const index = this.editor ? this.lineIndex() : -1; // it may have been cleared since this was asked for
    const line = `#${CSS.escape(this.editor)} .cm-content > .cm-line:nth-child(${index + 1})`;
    const rule = index < 0
      ? ""
      : `${line} { background: var(--wb-error-line); box-shadow: inset 2px 0 0 var(--wb-bad); }`;
    if (this.style.textContent !== rule) this.style.textContent = rule;
  }

  /** The line's place among those the editor draws, or -1. */
  lineIndex() {
    const box = document.getElementById(this.editor);
    const numbers =
      /** @type {HTMLElement[]} */ ([...box?.querySelectorAll(".cm-lineNumbers .cm-gutterElement") ?? []]);
    const label = numbers.find((node) => node.textContent === String(this.line) && node.style.visibility !== "hidden");
    if (!box || !label) return -1;
    const { top } = label.getBoundingClientRect();
    return [...box.querySelectorAll(".cm-content > *")].findIndex((node) =>
      node.classList.contains("cm-line") && Math.abs(node.getBoundingClientRect().top - top) < 3
    );
  }
}
