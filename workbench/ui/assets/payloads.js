// The types of what the page asks the server; those of the answers are made from the Python types, by
// tests/payload_types.py. Nothing imports this module when it runs.

/** @import { HandLabelsPayload, LabelsFile, RunsAnswers, TrainAnswers } from "../../views/payloads.d.ts" */

/**
 * @template [Server=unknown]
 * @typedef {Object} Handles What Gradio hands an element's script.
 * @property {HTMLElement} element
 * @property {{ value: string, rows?: string, chosen?: string }} props
 * @property {(name: "value" | "rows" | "chosen", update: () => void) => void} watch
 * @property {Server} server the functions that the element was given
 * @property {(event: string, data?: Record<string, unknown>) => void} trigger
 */

/**
 * @template Asked, Answer
 * @typedef {(asked: Asked) => Promise<Answer | undefined>} Call A function of the server; undefined where it did not
 *   answer, see `answerOf` in widget.js.
 */

/** @typedef {{ prompt: string, completion: string, steps: [number, number][], k: number, label: number | null }} MarkAsked */

/**
 * @typedef {Object} LabelServer What is asked to label steps by hand.
 * @property {Call<{ prompt: string, completions: string[] }, HandLabelsPayload>} labels_of
 * @property {Call<MarkAsked, HandLabelsPayload>} mark_step
 * @property {Call<{ layout: string }, LabelsFile>} labels_file
 */

/** @typedef {{ run: string, step: number, group: number, watched: boolean }} GroupAsked */

/**
 * @typedef {Object} TrainServer What the Train tab may ask.
 * @property {Call<{}, TrainAnswers["runs_table"]>} runs_table
 * @property {Call<PollAsked, TrainAnswers["poll"]>} poll
 * @property {Call<{ run: string, key: string }, TrainAnswers["curve"]>} curve
 * @property {Call<{ run: string }, TrainAnswers["describe"]>} describe
 * @property {Call<GroupAsked, TrainAnswers["rollouts"]>} rollouts
 * @property {Call<GroupAsked & { rollout: number, token: number }, TrainAnswers["why"]>} why
 * @property {Call<{ run: string }, TrainAnswers["problems"]>} problems
 * @property {Call<RolloutsAsked, TrainAnswers["all_rollouts"]>} all_rollouts
 * @property {Call<{ run: string }, TrainAnswers["stop"]>} stop
 * @property {Call<{ run: string }, TrainAnswers["resume"]>} resume
 * @property {Call<{ run: string }, TrainAnswers["start_now"]>} start_now
 */

/**
 * @typedef {{ run: string, cursor: number, after: number, after_watched: number, smoothing: number, groups: string[] }} PollAsked
 */
/** @typedef {{ run: string, search: string, order: string, offset: number }} RolloutsAsked */
/** @typedef {{ runs: string[], axis: string, off: string[], each: boolean, smoothing: number }} OverlayAsked */

/**
 * @typedef {Object} RunsServer What the Runs tab may ask.
 * @property {Call<{}, RunsAnswers["table"]>} table
 * @property {Call<OverlayAsked, RunsAnswers["overlay"]>} overlay
 * @property {Call<OverlayAsked & { key: string }, RunsAnswers["curve"]>} curve
 * @property {Call<{ runs: string[], index: number }, RunsAnswers["side_by_side"]>} side_by_side
 * @property {Call<{ run: string, name: string, note: string, tags: string[] }, RunsAnswers["say_of"]>} say_of
 * @property {Call<{ runs: string[] }, RunsAnswers["remove"]>} remove
 * @property {Call<{ entries: string[] }, RunsAnswers["undelete"]>} undelete
 * @property {Call<{ run: string }, RunsAnswers["resume"]>} resume
 * @property {Call<{ run: string }, RunsAnswers["stop"]>} stop
 */

export {};
