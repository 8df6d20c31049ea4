// Native fields, drawn from what a section says of them.

/** @import { FieldPayload } from "../../views/payloads.d.ts" */
/** @typedef {{ node: HTMLElement, input: HTMLInputElement, value: () => unknown }} Control */

import { el } from "../../views/dom.js";

/** @param {string} prefix of its id @param {FieldPayload} field @param {string[]} [outcomes] names of outcome rewards @returns {Control} */
export function control(prefix, { name, label, help, kind, value, choices, placeholder }, outcomes = []) {
  const id = `${prefix}-${name.replaceAll("_", "-")}`, title = help || null;
  if (kind === "switch") {
    const input = el("input", { type: "checkbox", checked: Boolean(value) });
    return { node: el("label", { id, class: "switch", title }, input, label), input, value: () => input.checked };
  }
  const offered = kind === "outcome" ? outcomes.map((name) => [name, name]) : choices;
  const options = offered.map(([label, one]) => el("option", { value: one, selected: one === value }, label));
  /** @type {any} one of three elements that hold a value */
  const input = options.length
    ? el("select", {}, ...options)
    : kind === "long"
    ? el("textarea", { rows: 4 }, String(value ?? ""))
    : el("input", { type: kind === "number" ? kind : "text", step: "any", value: String(value ?? ""), placeholder });
  const read = () => kind !== "number" ? input.value : Number.isNaN(input.valueAsNumber) ? null : input.valueAsNumber;
  return { node: el("label", { id, class: kind, title }, el("span", {}, label), input), input, value: read };
}
