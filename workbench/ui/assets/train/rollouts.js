// The stored rollouts, or watched rows, of a run: a slider over its steps, its groups, and the heatmap of the one that
// is shown.

/** @import { Failed, GroupPayload, News, SharePayload, StoredGroup } from "../../../views/payloads.d.ts" */
/** @import { Place as Pin } from "../../../views/drawing/payload.js" */
/** @import { LabelServer, TrainServer } from "../../../views/payloads.d.ts" */
/** @import { GroupAsked } from "../payloads.js" */
/** @import { Place, Shown } from "./state.js" */
/**
 * @typedef {Object} ControlActions What the controls do.
 * @property {(index: number) => void} pickStep
 * @property {(on: boolean) => void} setFollow
 * @property {(by: number) => void} turn to another group
 * @property {(watched: boolean) => void} watch
 */

import { el, setText } from "../../../views/dom.js";
import { beside } from "../../../views/drawing/beside.js";
import { mount as mountHeatmap } from "../../../views/drawing/heatmap.js";
import { share as percent } from "../../../views/numbers.js";
import { HandLabels } from "../labels.js";
import { answerOf } from "../widget.js";
import { nearest } from "./state.js";

const SHARES_TITLE =
  "Sum of |push| over these tokens ÷ the sum over all tokens of the step’s batch; a push is minus the " +
  "derivative of the loss by a token’s log-prob. Blue: the part that makes them more likely; orange: less likely.";

const WATCHED =
  "Watched prompts are the same held-out prompts at every step, sampled with the same seed: what differs is the policy.";

/** The controls above the heatmap. */
class Controls {
  /** @param {ControlActions} on */
  constructor(on) {
    /** @type {HTMLInputElement} */
    this.slider = el("input", {
      type: "range",
      id: "step-slider",
      min: 0,
      max: 0,
      value: 0,
      "aria-label": "Training step",
      oninput: () => on.pickStep(Number(this.slider.value)),
    });
    this.stepText = el("output", { for: "step-slider", id: "step-shown" });
    /** @type {HTMLInputElement} */
    this.following = el("input", {
      type: "checkbox",
      id: "follow-latest",
      checked: true,
      onchange: () => on.setFollow(this.following.checked),
    });
    this.previous = el("button", { type: "button", onclick: () => on.turn(-1) }, "‹");
    this.next = el("button", { type: "button", onclick: () => on.turn(1) }, "›");
    this.groupText = el("span", { id: "group-shown" });
    /** @type {HTMLSelectElement} */
    this.which = el(
      "select",
      {
        id: "rollouts-of",
        "aria-label": "Which rollouts",
        title: WATCHED,
        onchange: () => on.watch(this.which.value === "watched"),
      },
      el("option", { value: "batch" }, "of the step’s batch"),
      el("option", { value: "watched" }, "of watched prompts"),
    );
    this.heading = el("h2", {}, "Rollouts");
    this.pointed = el("span", { class: "muted" });
    this.node = el(
      "div",
      { class: "rollout-head" },
      this.heading,
      this.which,
      el("label", { class: "step-field" }, "step ", this.slider, this.stepText),
      el("label", { class: "follow" }, this.following, " follow latest"),
      el("span", { class: "group-field" }, this.previous, this.groupText, this.next),
      this.pointed,
    );
  }

  /** @param {string} heading @param {string} noun of what is turned over */
  name(heading, noun) {
    setText(this.heading, heading);
    this.previous.setAttribute("aria-label", `Previous ${noun}`);
    this.next.setAttribute("aria-label", `Next ${noun}`);
  }
}

/** The switch that shows a watched prompt's answers of the first step beside those of the step that is shown. */
class BesideFirst {
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

/** @param {SharePayload[]} shares @returns {HTMLElement[]} */
function sharesOf(shares) {
  if (!shares.length) return [];
  const rows = shares.map(({ name, tokens, share, up }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      el(
        "td",
        { class: "bar" },
        el("i", { class: "up", style: `width: ${100 * up}%` }),
        el("i", { class: "down", style: `width: ${100 * (share - up)}%` }),
      ),
      el("td", {}, percent(share, 1)),
      el("td", {}, `${tokens} tokens`),
    )
  );
  return [
    el("summary", { title: SHARES_TITLE }, "Where the gradient comes from"),
    el("table", {}, el("tbody", {}, ...rows)),
  ];
}

export class Rollouts {
  /** @param {TrainServer & LabelServer} server @param {() => void} moved called whenever something else is shown */
  constructor(server, moved) {
    this.server = server;
    this.moved = moved;
    /** @type {string | null} */
    this.run = null;
    this.final = false; // whether the run is over
    /** @type {number | null} the step that is shown, or is asked for */
    this.step = null;
    /** @type {number | null} the step that is drawn */
    this.drawn = null;
    /** @type {number | null} the optimiser step whose loss it lacks yet */
    this.awaited = null;
    this.group = 0;
    this.groups = 1; // of the step
    this.noun = "group";
    this.watched = false; // whether those of watched prompts are shown
    this.follow = true; // whether the latest step is
    /** @type {{ batch: number[], watched: number[] }} the steps that have any */
    this.stored = { batch: [], watched: [] };
    /** @type {Pin | null} */
    this.pinned = null;
    /** @type {Place | null} to be pinned once it is drawn */
    this.wanted = null;
    /** @type {GroupAsked | null} to be asked for next */
    this.wish = null;
    this.asking = false;
    this.controls = new Controls({
      pickStep: (index) => this.pickStep(index),
      setFollow: (on) => this.setFollow(on),
      turn: (by) => this.pickGroup(this.group + by),
      watch: (on) => this.watch(on),
    });
    this.beside = new BesideFirst(server, () => this.fetch());
    this.controls.pointed.before(this.beside.label);
    this.message = el("p", { class: "muted", role: "status" });
    this.shares = el("details", { class: "shares", hidden: true });
    const holder = el("div", { id: "run-heatmap" });
    const named = { class: "rollouts", "aria-label": "Rollouts", hidden: true };
    this.node = el(
      "section",
      named,
      this.controls.node,
      this.message,
      this.shares,
      this.beside.node,
      holder,
    );
    this.heatmap = mountHeatmap(holder, {
      onPin: (pinned) => {
        this.pinned = pinned;
        if (pinned) this.setFollow(false);
        else moved();
      },
      explain: (rollout, token) => this.why(rollout, token),
    });
    new HandLabels(this.heatmap, server);
    this.clear(null);
  }

  /** @param {number} rollout @param {number} token Why one of the group that is drawn has its advantage. */
  async why(rollout, token) {
    const { run, drawn: step, group, watched } = this;
    return run === null || step === null ? null : await this.server.why({ run, step, group, watched, rollout, token });
  }

  /**
   * As it is before the first rollouts of `run`; then those of `step` are shown, or the latest.
   * @param {string | null} run @param {Partial<Shown>} [shown]
   */
  clear(run, { step = null, group = 0, watched = false, place = null } = {}) {
    this.run = run;
    this.step = step;
    this.drawn = null;
    this.awaited = null;
    this.group = group;
    this.groups = 1;
    this.watched = watched;
    this.pinned = null;
    this.wanted = place;
    this.follow = this.controls.following.checked = step === null;
    this.name(true);
    this.forget();
    this.beside.clear();
    this.heatmap.unpin();
    this.heatmap.draw({ rollouts: [], prompt: "" });
    const { stepText, groupText } = this.controls;
    for (const node of [stepText, groupText, this.message]) node.textContent = "";
    this.node.hidden = true;
  }

  /** Which steps there are is asked for anew. */
  forget() {
    this.stored = { batch: [], watched: [] };
  }

  get steps() {
    return this.watched ? this.stored.watched : this.stored.batch;
  }

  /** The last steps that are known, as the server is asked with. */
  get known() {
    const { batch, watched } = this.stored;
    return { after: batch.at(-1) ?? -1, after_watched: watched.at(-1) ?? -1 };
  }

  /**
   * A pinned token's rollout and step, both from 1. The token stays pinned when another training step is drawn, where it
   * may lie in another step of the answer.
   * @returns {Place | null}
   */
  get place() {
    const { pinned } = this;
    const k = pinned ? (this.heatmap.data.rollouts[pinned.g]?.stepOf[pinned.t] ?? -1) : -1;
    return pinned && k >= 0 ? { rollout: pinned.g + 1, k: k + 1 } : this.wanted;
  }

  /** @param {boolean} hasRollouts Calls things by their names: rollouts, or rows where the method samples none. */
  name(hasRollouts) {
    const heading = hasRollouts ? "Rollouts" : "Watched rows";
    this.noun = hasRollouts ? "group" : "row";
    this.controls.name(heading, this.noun);
    this.node.setAttribute("aria-label", heading);
    if (!hasRollouts) this.watched = true;
  }

  /** @param {Pick<News, "steps" | "watched" | "has_rollouts" | "step" | "final">} news Takes what was stored since. */
  add({ steps, watched, has_rollouts: hasRollouts, step, final }) {
    const { slider, which } = this.controls;
    this.name(hasRollouts);
    this.stored.batch.push(...steps);
    this.stored.watched.push(...watched);
    this.node.hidden = !this.stored.batch.length && !this.stored.watched.length;
    which.hidden = !hasRollouts || !this.stored.watched.length;
    if (this.watched && !this.stored.watched.length && this.stored.batch.length) this.watched = false;
    which.value = this.watched ? "watched" : "batch";
    this.offerBeside();
    if (this.awaited !== null && (final || step >= this.awaited)) this.fetch();
    if (!(this.watched ? watched : steps).length) return;
    slider.max = `${this.steps.length - 1}`;
    if (this.follow) this.latest();
    else if (this.drawn === null && this.step !== null) this.pickStep(nearest(this.steps, this.step), false);
    else slider.value = `${Math.max(0, this.steps.findIndex((step) => step === this.step))}`;
  }

  /** @param {boolean} on */
  setFollow(on) {
    this.follow = this.controls.following.checked = on;
    if (on) this.latest();
    else this.moved();
  }

  latest() {
    if (this.steps.length) this.pickStep(this.steps.length - 1, false);
  }

  /**
   * The step stays as near as there is one, so that a prompt of the batch and a watched one are of the same policy.
   * @param {boolean} on
   */
  watch(on) {
    this.watched = on;
    this.group = 0;
    this.offerBeside();
    this.controls.slider.max = `${Math.max(0, this.steps.length - 1)}`;
    if (this.step !== null) this.pickStep(nearest(this.steps, this.step), false);
  }

  /** The first step's answers are of the same prompts and random numbers where prompts are watched. */
  offerBeside() {
    this.beside.offer(this.watched && this.noun === "group" ? this.stored.watched : []);
  }

  /** @param {{ step: number, group: number, rollout: number }} place Shows one rollout of a step's batch. */
  show({ step, group, rollout }) {
    this.watched = false;
    this.controls.which.value = "batch";
    this.group = group;
    this.wanted = { rollout: rollout + 1, k: 1 };
    this.offerBeside();
    this.controls.slider.max = `${Math.max(0, this.steps.length - 1)}`;
    this.setFollow(false);
    this.heatmap.unpin();
    this.pickStep(nearest(this.steps, step), false);
    this.node.scrollIntoView({ block: "start" });
  }

  /** @param {number} step that was picked on a curve */
  pickNear(step) {
    if (!this.steps.length) return;
    this.setFollow(false);
    this.pickStep(nearest(this.steps, step));
  }

  /** @param {number} index @param {boolean} [byHand] */
  pickStep(index, byHand = true) {
    if (!this.steps.length) return;
    const { slider, following } = this.controls;
    this.step = this.steps[index];
    slider.value = `${index}`;
    slider.setAttribute("aria-valuetext", `step ${this.step}`);
    if (byHand && (index < this.steps.length - 1 || this.final)) this.follow = following.checked = false;
    this.fetch();
  }

  /** @param {number} group */
  pickGroup(group) {
    this.group = (group + this.groups) % this.groups;
    this.fetch();
  }

  /** Dragging the slider asks for the newest position only: while one answer is on its way, the last wish waits. */
  async fetch() {
    const { run, step, group, watched } = this;
    if (run === null || step === null) return;
    this.controls.stepText.textContent = `${step}`;
    this.wish = { run, step, group, watched };
    this.moved();
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.wish) {
        /** @type {GroupAsked} */
        const asked = this.wish;
        this.wish = null;
        const answer = await answerOf(this.server.rollouts(asked));
        if (asked.run === this.run && asked.watched === this.watched) this.draw(answer);
      }
    } catch {
      this.message.textContent = "The workbench did not answer; the rollouts shown are older.";
    } finally {
      this.asking = false;
    }
  }

  /** @param {StoredGroup | Failed} answer */
  draw(answer) {
    this.message.textContent = "error" in answer ? answer.error : "";
    if ("error" in answer) return;
    const { step, group, groups } = answer;
    /** @type {GroupPayload} */
    const payload = JSON.parse(answer.drawing);
    this.group = group;
    this.groups = groups;
    this.drawn = step;
    this.awaited = answer.awaited;
    this.controls.groupText.textContent = `${this.noun} ${group + 1} of ${groups}`;
    this.shares.replaceChildren(...sharesOf(answer.shares));
    this.shares.hidden = !answer.shares.length;
    const asked = { run: this.run ?? "", step, group, watched: this.watched };
    this.beside.draw(payload, asked, this.stored.watched[0]);
    this.heatmap.draw({ ...payload, step });
    const { wanted } = this;
    this.wanted = null;
    const pinned = wanted && this.heatmap.data.rollouts[wanted.rollout - 1]?.steps?.[wanted.k - 1];
    if (wanted && pinned) this.heatmap.pin(wanted.rollout - 1, pinned.last);
    this.moved();
  }
}
