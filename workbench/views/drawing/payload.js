// The types of what is drawn: JSON as views/heatmap.py makes it (each typedef there is the TypedDict of the same name
// in views/payloads.py; a test holds their keys against each other), and what `prepare` in tokens.js adds to it.
// Nothing imports this module when it runs.

/**
 * @typedef {Object} TermPayload One term of the sum that a token's advantage is.
 * @property {string} source "step", "outcome", "sum", "mean", "return", "token", "delta", "later" or "centre"
 * @property {number | null} step 0-based
 * @property {number | null} token 0-based, where it carries a token's statistic or temporal difference
 * @property {Record<string, number | null>} scores by reward function
 * @property {Record<string, number>} weights by reward function
 * @property {number | null} reward weighted sum of the scores
 * @property {number} raw what the scheme normalised
 * @property {number | null} mean
 * @property {number | null} std
 * @property {number} normalised
 * @property {number} factor
 * @property {number} value
 */

/**
 * @typedef {Object} WhyPayload The terms of one token, asked of the server.
 * @property {number} first token
 * @property {number} last token
 * @property {TermPayload[]} list
 * @property {number} total
 * @property {number | null} clip
 * @property {SaidPart[]} said
 */

/**
 * @typedef {Object} StretchPayload Tokens with the same terms.
 * @property {number} first token
 * @property {number} last token
 * @property {[number, number][]} terms runs of indices into the rollout's terms
 * @property {number} total
 * @property {number | null} clip
 * @property {SaidPart[]} said
 */

/** @typedef {[text: string, target: string | null]} SaidPart A piece of a sentence, and what it points at. */

/** @typedef {{ first: number, last: number, list?: TermPayload[], terms?: [number, number][], total: number, clip: number | null, said: SaidPart[] }} Why */

/** @typedef {[string, string, string | number | boolean]} Logged reward function, column and value, beside a score */

/**
 * @typedef {Object} StepPayload
 * @property {number} start UTF-16 offset in the rollout's text
 * @property {number} end
 * @property {number} first token
 * @property {number} last token
 * @property {number | null} reward
 * @property {number | null} normalised
 * @property {Record<string, number | null>} scores by reward function
 * @property {Logged[]} [logged]
 */

/**
 * @typedef {Object} CreditedPayload A rollout under one scheme.
 * @property {number[]} advantages
 * @property {boolean} matched
 * @property {boolean} [unsplit] left whole and unscored: the pattern finds too many steps
 * @property {StepPayload[]} steps
 * @property {number | null} outcome
 * @property {Record<string, number | null>} outcomes by reward function
 * @property {Logged[]} [logged]
 * @property {string} [extracted] what was read as the final answer
 * @property {[number, number][]} matches UTF-16 offsets
 * @property {TermPayload[]} [terms]
 * @property {StretchPayload[]} [why]
 */

/**
 * @typedef {Object} MeasurePayload What a watched row's tokens are coloured by.
 * @property {string} key
 * @property {string} label
 * @property {string} short its name on the chips' key
 * @property {string} meaning
 * @property {boolean} signed
 * @property {boolean} additive whether a step has the sum of its tokens, not their mean
 */

/**
 * @typedef {Object} FactPayload A number of a watched row or text, now and at the first look.
 * @property {string} name
 * @property {number} value
 * @property {number | null} before
 */

/**
 * @typedef {Object} BeforePayload A watched text as the model saw it at first.
 * @property {Record<string, number[]>} values by measure
 * @property {number[] | null} logprobs
 * @property {number[]} [reference]
 * @property {number[]} [raw]
 */

/**
 * @typedef {Object} PassPayload An optimiser step: the sum of its batch's contributions, and the trainer's own loss.
 * @property {number} step
 * @property {number} number
 * @property {number} total
 * @property {number | null} logged
 * @property {number} router the part of it that is no token's
 */

/**
 * @typedef {Object} LossPayload A loss, under TRL's names.
 * @property {string} type
 * @property {number} epsilon
 * @property {number} epsilonHigh
 * @property {number | null} delta
 * @property {number} beta
 * @property {boolean} klTimesRatio
 * @property {boolean} sequenceRatio
 * @property {number[]} sapoTemperatures
 * @property {number[]} vespoK
 * @property {number[]} vespoLambda
 * @property {PassPayload[]} passes
 */

/**
 * @typedef {Object} SeenPayload What a pass saw of a rollout.
 * @property {number[] | null} logprobs null where it was left out
 * @property {number[] | null} old null where the ratio is 1
 * @property {number[]} [weights] what else multiplies the policy term
 * @property {number[]} [bonus] what an entropy bonus adds to the loss
 */

/**
 * @typedef {Object} RolloutLossPayload
 * @property {Record<string, number>} coefficients by loss type
 * @property {SeenPayload[]} passes
 * @property {number[]} [sampled] 0 for tokens that the policy did not sample
 */

/**
 * @typedef {Object} TurnPayload A stretch of an episode.
 * @property {string} role "assistant" is the policy
 * @property {boolean} sampled whether the policy wrote it
 * @property {number} start token
 * @property {number} end token, exclusive
 * @property {number} seconds
 * @property {string | null} error why the environment gave no answer to it
 * @property {string} note
 * @property {string[]} [calls] the tool of each call, "" where it names none
 * @property {boolean} [isCall] whether it is calls and nothing else
 */

/**
 * @typedef {Object} RolloutPayload
 * @property {number[]} ids
 * @property {string[]} texts
 * @property {boolean} finished whether its last token is an end-of-sequence token
 * @property {string} [stop] the stop string that ended it
 * @property {number[] | null} logprobs
 * @property {number[] | null} entropies
 * @property {number} [copyOf] the first rollout that it is an exact copy of, from 0
 * @property {TurnPayload[]} [turns] of an episode
 * @property {number[]} [raw]
 * @property {number[]} [reference]
 * @property {Record<string, number>} [normalisers] by loss; 1 is an even share
 * @property {RolloutLossPayload} [loss]
 * @property {CreditedPayload} [twin] under the second scheme
 * @property {string} [name] of a watched row's text
 * @property {Record<string, number[]>} [values] further numbers of its tokens, by measure
 * @property {FactPayload[]} [facts]
 * @property {BeforePayload} [before]
 */

/**
 * @typedef {Object} NoSpreadPayload Why every advantage is 0, and the labels of the remedies.
 * @property {string} reason
 * @property {string} advice
 * @property {string[]} remedies
 */

/**
 * @typedef {Object} SchemePayload
 * @property {string} scheme
 * @property {string} formula
 * @property {string} counts what a token's advantage is made of, in words
 * @property {Record<string, unknown>} options
 * @property {number | null} mean
 * @property {number | null} std
 * @property {boolean} spread
 * @property {NoSpreadPayload | null} noSpread
 * @property {string[]} warnings
 */

/**
 * @typedef {Object} OtherPayload The second scheme, compared with the first.
 * @property {string} scheme
 * @property {string} formula
 * @property {string} counts what a token's advantage is made of, in words
 * @property {Record<string, unknown>} options
 * @property {number | null} mean
 * @property {number | null} std
 * @property {boolean} spread
 * @property {NoSpreadPayload | null} noSpread
 * @property {string[]} warnings
 * @property {string[]} names of both: the scheme, and the rewards where these differ
 * @property {number} flippedShare
 * @property {number | null} correlation
 * @property {number} meanDifference
 */

/**
 * @typedef {Object} GroupPayload A group, and where it is scored the fields of SchemePayload.
 * @property {string} prompt
 * @property {string} [policy]
 * @property {RolloutPayload[]} rollouts
 * @property {{ name: string, kind: string, weight: number }[]} [rewards]
 * @property {{ outcome: string | null, step: string | null }} [judges] the rewards that say right (above 0) or wrong
 * @property {boolean} [normalisers] whether rollouts have them
 * @property {SaidPart[][]} [said] sentences about the group
 * @property {LossPayload} [loss]
 * @property {OtherPayload} [other]
 * @property {MeasurePayload[]} [measures] of a watched row
 * @property {FactPayload[]} [facts]
 * @property {number} [step] the training step that is shown
 * @property {number | null} [before] that of the first look
 */

/** @typedef {{ g: number, t: number }} Place a rollout and a token of it, both from 0 */

/**
 * @typedef {Object} Prepares
 * @property {Int32Array} offsets UTF-16 offset of each token, and of the end
 * @property {Int32Array} stepOf step of each token, -1 outside every step
 * @property {number | null} [rank] 1 is best
 * @property {boolean | null} [right] whether the answer is, null where no outcome reward says so
 * @property {MeasurePayload[]} [measures] those of its watched row
 * @property {{ a: TokenLosses, b: TokenLosses | null }} [read] its tokens in the loss that is looked at, and beside it
 * @property {Uint8Array} [observed] of an episode: 1 for each token that the policy did not sample
 * @property {boolean[]} [wrong] by step: the reward that says right or wrong calls it wrong
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
