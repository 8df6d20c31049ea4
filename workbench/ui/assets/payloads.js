// What Gradio hands the scripts. The types of what they are sent, and of what they may ask of the server, are made from
// the Python types, by tests/payload_types.py. Nothing imports this module when it runs.

/**
 * @template [Server=unknown]
 * @typedef {Object} Handles What Gradio hands an element's script.
 * @property {HTMLElement} element
 * @property {{ value: string, rows?: string, chosen?: string, charts?: string }} props
 * @property {(name: "value" | "rows" | "chosen" | "charts", update: () => void) => void} watch
 * @property {Server} server the functions that the element was given
 * @property {(event: string, data?: Record<string, unknown>) => void} trigger
 */

/**
 * @template Asked, Answer
 * @typedef {(asked: Asked) => Promise<Answer | undefined>} Call A function of the server; undefined where it did not
 *   answer, see `answerOf` in widget.js.
 */

/** @typedef {{ run: string, step: number, group: number, watched: boolean }} GroupAsked */

export {};
