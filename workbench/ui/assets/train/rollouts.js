// @ts-nocheck: elements and their events; what is computed is checked beside it
// The stored rollouts, or watched rows, of a run: a slider over its steps, its groups, and the heatmap of the one that
// is shown.

import { el, setText } from "../../../figures/dom.js";
import { mount as mountHeatmap } from "../../../figures/drawing/heatmap.js";
import { nearest } from "./state.js";

const WATCHED =
  "Watched prompts are the same held-out prompts at every step, sampled with the same seed: what differs is the policy.";

export class Rollouts {
  // `moved` is called whenever something else is shown.
  constructor(server, moved) {
    Object.assign(this, { server, moved, run: null, asking: false, wish: null });
    this.slider = el("input", {
      type: "range",
      id: "step-slider",
      min: 0,
      max: 0,
      value: 0,
      "aria-label": "Training step",
      oninput: () => this.pickStep(Number(this.slider.value)),
    });
    this.stepText = el("output", { for: "step-slider", id: "step-shown" });
    this.following = el("input", {
      type: "checkbox",
      id: "follow-latest",
      checked: true,
      onchange: () => this.setFollow(this.following.checked),
    });
    const turn = (by, text) => el("button", { type: "button", onclick: () => this.pickGroup(this.group + by) }, text);
    [this.previous, this.next] = [turn(-1, "‹"), turn(1, "›")];
    this.groupText = el("span", { id: "group-shown" });
    this.which = el(
      "select",
      {
        id: "rollouts-of",
        "aria-label": "Which rollouts",
        title: WATCHED,
        onchange: () => this.watch(this.which.value === "watched"),
      },
      el("option", { value: "batch" }, "of the step’s batch"),
      el("option", { value: "watched" }, "of watched prompts"),
    );
    this.heading = el("h2", {}, "Rollouts");
    this.pointed = el("span", { class: "muted" });
    this.prompt = el("p", { class: "about" });
    this.message = el("p", { class: "muted", role: "status" });
    const holder = el("div", { id: "run-heatmap" });
    const head = el(
      "div",
      { class: "rollout-head" },
      this.heading,
      this.which,
      el("label", { class: "step-field" }, "step ", this.slider, this.stepText),
      el("label", { class: "follow" }, this.following, " follow latest"),
      el("span", { class: "group-field" }, this.previous, this.groupText, this.next),
      this.pointed,
    );
    this.node = el(
      "section",
      { class: "rollouts", "aria-label": "Rollouts", hidden: true },
      head,
      this.prompt,
      this.message,
      holder,
    );
    this.heatmap = mountHeatmap(holder, {
      onPin: (pinned) => {
        this.pinned = pinned;
        if (pinned) this.setFollow(false);
        else moved();
      },
      explain: (rollout, token) =>
        server.why({ run: this.run, step: this.drawn, group: this.group, watched: this.watched, rollout, token }),
    });
    this.clear(null);
  }

  // As it is before the first rollouts of `run`; then those of `step` are shown, or the latest.
  clear(run, { step = null, group = 0, watched = false, place = null } = {}) {
    Object.assign(this, {
      run,
      step,
      group,
      watched,
      groups: 1,
      follow: step === null,
      pinned: null,
      wanted: place,
      drawn: null,
    });
    this.name(true);
    this.forget();
    this.following.checked = this.follow;
    this.heatmap.unpin();
    this.heatmap.draw({ rollouts: [], prompt: "" });
    this.prompt.textContent =
      this.stepText.textContent =
      this.groupText.textContent =
      this.message.textContent =
        "";
    this.node.hidden = true;
  }

  // Which steps there are is asked for anew.
  forget() {
    this.stored = { batch: [], watched: [] };
  }

  get steps() {
    return this.watched ? this.stored.watched : this.stored.batch;
  }

  // The last steps that are known, as the server is asked with.
  get known() {
    const last = (steps) => steps[steps.length - 1] ?? -1;
    return { after: last(this.stored.batch), after_watched: last(this.stored.watched) };
  }

  // A pinned token's rollout and step, both from 1. The token stays pinned when another training step is drawn, where it
  // may lie in another step of the answer.
  get place() {
    const { pinned } = this;
    const k = pinned ? (this.heatmap.data.rollouts[pinned.g]?.stepOf[pinned.t] ?? -1) : -1;
    return k >= 0 ? { rollout: pinned.g + 1, k: k + 1 } : this.wanted;
  }

  // Calls things by their names: groups of rollouts, or the watched rows of a method that samples none.
  name(hasRollouts) {
    this.noun = hasRollouts ? "group" : "row";
    setText(this.heading, hasRollouts ? "Rollouts" : "Watched rows");
    this.node.setAttribute("aria-label", this.heading.textContent);
    this.previous.setAttribute("aria-label", `Previous ${this.noun}`);
    this.next.setAttribute("aria-label", `Next ${this.noun}`);
    if (!hasRollouts) this.watched = true;
  }

  // Takes the steps that were stored since.
  add({ steps, watched, has_rollouts: hasRollouts }) {
    this.name(hasRollouts);
    this.stored.batch.push(...steps);
    this.stored.watched.push(...watched);
    this.node.hidden = !this.stored.batch.length && !this.stored.watched.length;
    this.which.hidden = !hasRollouts || !this.stored.watched.length;
    if (this.watched && !this.stored.watched.length && this.stored.batch.length) this.watched = false;
    this.which.value = this.watched ? "watched" : "batch";
    if (!(this.watched ? watched : steps).length) return;
    this.slider.max = this.steps.length - 1;
    if (this.follow) this.latest();
    else if (this.drawn === null && this.step !== null) this.pickStep(nearest(this.steps, this.step), false);
    else this.slider.value = Math.max(0, this.steps.indexOf(this.step));
  }

  setFollow(on) {
    this.follow = this.following.checked = on;
    if (on) this.latest();
    else this.moved();
  }

  latest() {
    if (this.steps.length) this.pickStep(this.steps.length - 1, false);
  }

  // The step stays as near as there is one, so that a prompt of the batch and a watched one are of the same policy.
  watch(on) {
    Object.assign(this, { watched: on, group: 0 });
    this.slider.max = Math.max(0, this.steps.length - 1);
    if (this.step !== null) this.pickStep(nearest(this.steps, this.step), false);
  }

  // Of a step that was picked on a curve.
  pickNear(step) {
    if (!this.steps.length) return;
    this.setFollow(false);
    this.pickStep(nearest(this.steps, step));
  }

  pickStep(index, byHand = true) {
    if (!this.steps.length) return;
    this.step = this.steps[index];
    this.slider.value = index;
    this.slider.setAttribute("aria-valuetext", `step ${this.step}`);
    if (byHand && (index < this.steps.length - 1 || this.final)) this.follow = this.following.checked = false;
    this.fetch();
  }

  pickGroup(group) {
    this.group = (group + this.groups) % this.groups;
    this.fetch();
  }

  // Dragging the slider asks for the newest position only: while one answer is on its way, the last wish waits.
  async fetch() {
    this.stepText.textContent = `${this.step}`;
    this.wish = { run: this.run, step: this.step, group: this.group, watched: this.watched };
    this.moved();
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.wish) {
        const asked = this.wish;
        this.wish = null;
        const answer = await this.server.rollouts(asked);
        if (asked.run === this.run && asked.watched === this.watched) this.draw(answer);
      }
    } catch {
      this.message.textContent = "The workbench did not answer; the rollouts shown are older.";
    } finally {
      this.asking = false;
    }
  }

  draw(answer) {
    this.message.textContent = answer.error ?? "";
    if (answer.error) return;
    const payload = JSON.parse(answer.drawing);
    Object.assign(this, { group: answer.group, groups: answer.groups, drawn: answer.step });
    this.groupText.textContent = `${this.noun} ${answer.group + 1} of ${answer.groups}`;
    this.prompt.replaceChildren(el("code", {}, payload.prompt.trim()));
    this.heatmap.draw({ ...payload, step: answer.step, group: answer.group });
    const { wanted } = this;
    this.wanted = null;
    const pinned = wanted && this.heatmap.data.rollouts[wanted.rollout - 1]?.steps?.[wanted.k - 1];
    if (pinned) this.heatmap.pin(wanted.rollout - 1, pinned.last);
    this.moved();
  }
}
