// Deleted runs: an offer to undo right after, and the list of all that are in the trash.

/** @import { TrashedPayload } from "../../../views/payloads.d.ts" */

import { el, once } from "../../../views/dom.js";
import { link } from "../widget.js";
import { plural, when } from "./columns.js";

export class Trash {
  /** @param {(entries: string[]) => void} restore called with entries of the trash */
  constructor(restore) {
    this.restore = restore;
    this.toast = el("div", { class: "toast", id: "runs-toast", role: "status", hidden: true });
    this.node = el("details", { class: "trash", id: "runs-trash", hidden: true });
  }

  /** @param {TrashedPayload[]} moved */
  offerUndo(moved) {
    const text = moved.length === 1 ? `Deleted ${moved[0].name}.` : `Deleted ${moved.length} runs.`;
    const undo = link("Undo", () => this.restore(moved.map(({ entry }) => entry)), { id: "runs-undo" });
    const dismiss = el("button", {
      type: "button",
      class: "close",
      "aria-label": "Dismiss",
      onclick: () => this.dismiss(),
    }, "×");
    this.toast.replaceChildren(el("span", {}, text), undo, dismiss);
    this.toast.hidden = false;
    undo.focus();
  }

  dismiss() {
    this.toast.hidden = true;
  }

  /** @param {TrashedPayload[]} trashed */
  draw(trashed) {
    this.node.hidden = !trashed.length;
    const item = (/** @type {TrashedPayload} */ { name, entry, deleted }) =>
      el(
        "li",
        {},
        `${name}, ${when(deleted)} `,
        link("restore", () => this.restore([entry]), { "aria-label": `Restore ${name}` }),
      );
    once(this.node, trashed, () =>
      this.node.replaceChildren(
        el("summary", {}, plural(trashed.length, "deleted run")),
        el("p", { class: "muted" }, "Kept in the workspace’s folder trash; remove them there to free the space."),
        el("ul", {}, ...trashed.map(item)),
      ));
  }
}
