// The first rows of a task, as a run would take them.

/** @import { RowsPayload } from "../../views/payloads.d.ts" */
/** @import { Handles } from "./payloads.js" */

import { el } from "../../views/dom.js";
import { follow } from "./widget.js";

/** @param {Handles} handles */
export function taskRows(handles) {
  follow(handles, (root, /** @type {RowsPayload | null} */ value) => {
    root.className = `drawn ${value?.level ?? "none"}`;
    const role = value?.level === "error" ? "alert" : "status";
    const rows = (value?.rows ?? []).map((row) =>
      el("dl", { class: "facts" }, ...row.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))
    );
    root.replaceChildren(...(value ? [el("p", { role }, value.text), ...rows] : []));
  });
}
