// What somebody says of a run: another name, tags and a note, in a dialog.

/** @import { RunRow } from "../../../views/payloads.d.ts" */
/** @typedef {{ run: string, name: string, note: string, tags: string[] }} Said */

import { el } from "../../../views/dom.js";

/** @param {string} text Tags as they are typed, between commas. */
export const tagsOf = (text) => [...new Set(text.split(",").map((tag) => tag.trim()).filter(Boolean))];

export class AboutRun {
  /** @param {(said: Said) => Promise<string>} save what to say of it where it was not kept, else "" */
  constructor(save) {
    this.run = "";
    this.name = el("input", { type: "text", maxlength: 80, required: true, autocomplete: "off" });
    this.tags = el("input", { type: "text", placeholder: "baseline, to repeat", autocomplete: "off" });
    this.note = el("textarea", { rows: 4, maxlength: 4000 });
    this.problem = el("p", { class: "problem", role: "alert" });
    const field = (/** @type {string} */ label, /** @type {HTMLElement} */ input) => el("label", {}, label, input);
    /** @type {HTMLDialogElement} */
    this.node = el("dialog", { class: "about-run", "aria-label": "Name, tags and note" });
    const cancel = el("button", { type: "button", onclick: () => this.node.close() }, "Cancel");
    const form = el(
      "form",
      {
        onsubmit: async (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          const { run, name, note, tags } = this;
          const said = { run, name: name.value.trim(), note: note.value, tags: tagsOf(tags.value) };
          this.problem.textContent = await save(said);
          if (!this.problem.textContent) this.node.close();
        },
      },
      field("Name", this.name),
      field("Tags, between commas", this.tags),
      field("Note", this.note),
      this.problem,
      el("div", { class: "row-actions" }, el("button", { type: "submit", class: "save" }, "Save"), cancel),
    );
    this.node.append(form);
  }

  /** @param {RunRow} run */
  open({ name, note, tags, final }) {
    this.run = name;
    this.name.value = name;
    this.name.disabled = !final; // a run that goes on keeps its name
    this.tags.value = tags.join(", ");
    this.note.value = note;
    this.problem.textContent = "";
    this.node.showModal();
  }
}
