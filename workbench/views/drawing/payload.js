// The types of what is drawn: what `prepare` in tokens.js adds to the JSON of views/heatmap.py, whose own types are made
// from views/payloads.py by tests/payload_types.py. Nothing imports this module when it runs.

/** @import { CreditedPayload, GroupPayload, MeasurePayload } from "../payloads.d.ts" */
/** @import { RolloutPayload, SchemePayload, TermPayload } from "../payloads.d.ts" */

/** @typedef {[text: string, target: string | null]} SaidPart A piece of a sentence, and what it points at. */

/** @typedef {{ first: number, last: number, list?: TermPayload[], terms?: number[][], total: number, clip: number | null, said: SaidPart[] }} Why */

/** @typedef {[string, string, string | number | boolean]} Logged reward function, column and value, beside a score */

/** @typedef {{ g: number, t: number }} Place a rollout and a token of it, both from 0 */

/**
 * @typedef {Object} Prepares
 * @property {Int32Array} offsets UTF-16 offset of each token, and of the end
 * @property {Int32Array} stepOf step of each token, -1 outside every step
 * @property {number | null} [rank] 1 is best
 * @property {boolean | null} [right] whether the answer is, null where no outcome reward says so
 * @property {MeasurePayload[]} [measures] those of its watched row
 * @property {{ a: TokenLosses, b: TokenLosses | null }} [read] its tokens in the loss that is looked at, and beside it
 * @property {number} [share] what that loss multiplies its advantages with, where 1 is an even share of the tokens
 * @property {Uint8Array} [observed] of an episode: 1 for each token that the policy did not sample
 * @property {string[]} [wrong] by step: what calls it wrong, a reward or a label; "" for nothing
 * @property {number[]} [later] by step: what later ones add to its advantage
 *
 * @typedef {Omit<RolloutPayload, "twin"> & Partial<Omit<CreditedPayload, "why">> & Prepares
 *   & { why?: Why[], twin?: Credited | null }} Credited A rollout ready to be drawn, or its twin.
 * @typedef {Omit<GroupPayload, "rollouts"> & Partial<SchemePayload> & { rollouts: Credited[] }} Prepared A group ready to
 *   be drawn.
 */

/**
 * @typedef {Object} TokenLosses The terms of a rollout's tokens under one loss; see loss.js.
 * @property {number[]} ratio
 * @property {number[]} factor
 * @property {number[]} clipped 1 by an upper bound, -1 by a lower one
 * @property {number[]} kl times β
 * @property {number[]} contribution
 * @property {number[]} push
 * @property {number} normaliser
 */

/**
 * @typedef {Object} Measure What tokens and step chips can be coloured by.
 * @property {string} key
 * @property {string} label
 * @property {string} short its name on the chips' key
 * @property {boolean} signed
 * @property {string} [meaning] what its colours tell
 * @property {boolean} [negative] never above zero
 * @property {boolean} [small] its values are written with two significant figures
 * @property {boolean} [summed] a step has its tokens' sum, and steps a colour scale of their own
 * @property {boolean} [flipped] what is below zero is blue, as it makes tokens more likely
 * @property {boolean} [ofLoss] it depends on which loss is looked at
 * @property {boolean} [one] the same for both of two schemes, or for before and now
 * @property {boolean} [derived] in no other row of a token's facts
 * @property {(data: Prepared) => boolean} has
 * @property {(r: Credited, t: number) => number | null} token
 * @property {(r: Credited, k: number) => number | null} [step] without it, a step has its tokens' mean
 */

export {};
