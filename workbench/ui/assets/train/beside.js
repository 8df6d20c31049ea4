// The switch that shows a watched prompt's answers of the first step beside those of the step that is shown.

/** @import { GroupPayload } from "../../../views/payloads.d.ts" */
/** @import { GroupAsked, TrainServer } from "../payloads.js" */

import { el } from "../../../views/dom.js";
import { beside } from "../../../views/drawing/beside.js";
import { answerOf } from "../widget.js";

export class BesideFirst {
  /** @param {TrainServer} server @param {() => void} changed called when it is switched */
  constructor(server, changed) {
    this.server = server;
    /** @type {HTMLInputElement} */
    this.box = el("input", { type: "checkbox", id: "beside-first", onchange: changed });
    this.name = el("span", {}, "beside the first");
    this.label = el("label", { class: "follow", hidden: true }, this.box, " ", this.name);
    this.node = el("div", { class: "wh", id: "run-beside", hidden: true });
    /** @type {{ key: string, payload: GroupPayload } | null} the answers of the first step, asked for once */
    this.first = null;
  }

  /** @param {number[]} steps with watched rollouts; [] where there are none to compare */
  offer(steps) {
    this.label.hidden = steps.length < 2;
    if (steps.length) this.name.textContent = `beside step ${steps[0]}`;
  }

  /** Whether answers are shown beside each other. */
  get on() {
    return this.box.checked && !this.label.hidden;
  }

  /** @param {GroupPayload} now @param {GroupAsked} asked what is shown @param {number} first step */
  async draw(now, asked, first) {
    this.node.hidden = !this.on;
    if (!this.on) return;
    const key = `${asked.run} ${first} ${asked.group}`;
    if (this.first?.key !== key) {
      const answer = await answerOf(this.server.rollouts({ ...asked, step: first })).catch(() => null);
      if (!answer || "error" in answer) {
        this.node.replaceChildren(el("p", {}, answer ? answer.error : "The workbench did not answer; try again."));
        return;
      }
      this.first = { key, payload: JSON.parse(answer.drawing) };
    }
    this.node.replaceChildren(...beside(this.first.payload, now, [first, asked.step]));
  }

  /** As it is before anything is known of a run. */
  clear() {
    this.first = null;
    this.node.hidden = this.label.hidden = true;
    this.node.replaceChildren();
  }
}
