// The pinned token of a drawing: marked on its card, in the overview and on its step's chip, explained in the details.

/** @import { Credited, Measure, Place, Prepared, Why } from "./payload.js" */
/**
 * @typedef {Object} View What a token is pinned on; its data and measure change with every drawing.
 * @property {Prepared} data
 * @property {Measure} measure
 * @property {HTMLElement} cards
 * @property {{ mark: (pinned: Place | null) => void }} overview
 * @property {{ node: HTMLElement }} legend
 * @property {{ explain: (data: Prepared, pinned: Place) => HTMLElement | null }} lens
 * @property {((rollout: number, token: number, which: "a" | "b") => Promise<Why | null | undefined>) | null} explain
 * @property {() => void} unpin
 */

import { el } from "../dom.js";
import { pinnedDetails } from "./details.js";
import { uncover } from "./focus.js";
import { light, listenForLights, lit } from "./lighting.js";

export class Pin {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Place | null} kept through redraws, so that its numbers follow an edit */
    this.place = null;
    this.details = el("section", { class: "details", "aria-label": "Why this colour", hidden: true });
    new ResizeObserver(() => this.uncover()).observe(this.details); // grown, it would cover what it is about
    listenForLights(this.details, (lights) => {
      light(view.cards, lights && this.place ? lit(view.data, this.place, lights) : []);
    });
  }

  /** Forgets the token; whether the details had the focus. */
  clear() {
    this.place = null;
    this.details.hidden = true;
    this.unmark();
    return this.details.contains(document.activeElement);
  }

  /** Whether the drawing still has the token. */
  get isDrawn() {
    const { place, view } = this;
    const rollout = place && view.data.rollouts[place.g];
    return Boolean(place && rollout?.steps && place.t < rollout.texts.length);
  }

  /** Marks the token and says why it has its colour. */
  show() {
    const { place, view } = this;
    if (!place) return;
    const { g, t } = place;
    const article = view.cards.querySelector(`.rollout[data-g="${g}"]`);
    const k = view.data.rollouts[g].stepOf[t];
    this.unmark();
    const marked = `.text i[data-t="${t}"]${k < 0 ? "" : `, [data-k="${k}"]`}`;
    for (const node of article?.querySelectorAll(marked) ?? []) node.classList.add("pinned");
    view.overview.mark(place);
    this.details.replaceChildren(...pinnedDetails(view.data, place, view.measure, {
      onUnpin: () => view.unpin(),
      ask: (rollout, which) => this.ask(rollout, which),
      loss: view.lens.explain(view.data, place),
    }));
    this.details.hidden = false;
  }

  /** Scrolls it to where neither the legend nor the details cover it. */
  uncover() {
    const { cards, legend } = this.view;
    uncover(cards.querySelector(".text:not(.second) i.pinned"), legend.node, this.details);
  }

  unmark() {
    light(this.view.cards, []);
    for (const node of this.view.cards.querySelectorAll(".pinned")) node.classList.remove("pinned");
    this.view.overview.mark(null);
  }

  /** @param {Credited} rollout @param {"a" | "b"} which Asks for the terms that the payload did not bring. */
  ask(rollout, which) {
    const { place, view } = this;
    if (!rollout.advantages || !view.explain || !place) return;
    const { data } = view;
    view.explain(place.g, place.t, which).then((why) => {
      if (!why || place !== this.place || data !== view.data) return; // another token or another drawing by now
      (rollout.why ??= []).push(why);
      this.show();
      this.uncover();
    }, () => {}); // the rest of the details stands without it
  }
}
