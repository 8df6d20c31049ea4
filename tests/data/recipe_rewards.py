"""Rewards shaped like those that most tutorials train with, faults included: GSM8K's recipe and open-r1's two."""

import re


def extract_xml_answer(text):
    return text.split("<answer>")[-1].split("</answer>")[0].strip()


def correctness_reward_func(prompts, completions, answer, **kwargs):
    texts = [completion[0]["content"] for completion in completions]
    return [2.0 if extract_xml_answer(text) == right else 0.0 for text, right in zip(texts, answer, strict=True)]


def int_reward_func(completions, **kwargs):
    texts = [completion[0]["content"] for completion in completions]
    return [0.5 if extract_xml_answer(text).isdigit() else 0.0 for text in texts]


def strict_format_reward_func(completions, **kwargs):
    pattern = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$"
    return [0.5 if re.match(pattern, completion[0]["content"]) else 0.0 for completion in completions]


def soft_format_reward_func(completions, **kwargs):
    pattern = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
    return [0.5 if re.match(pattern, completion[0]["content"]) else 0.0 for completion in completions]


def count_marks(text):
    count = 0.125 * (text.count("<reasoning>\n") == 1) + 0.125 * (text.count("\n</reasoning>\n") == 1)
    if text.count("\n<answer>\n") == 1:
        count += 0.125 - 0.001 * len(text.split("\n</answer>\n")[-1])
    if text.count("\n</answer>") == 1:
        count += 0.125 - 0.001 * (len(text.split("\n</answer>")[-1]) - 1)
    return count


def xmlcount_reward_func(completions, **kwargs):
    return [count_marks(completion[0]["content"]) for completion in completions]


def accuracy_reward(completions, solution, **kwargs):
    from math_verify import LatexExtractionConfig, parse, verify

    scores = []
    for completion, right in zip(completions, solution, strict=True):
        gold = parse(right, extraction_mode="first_match")
        found = parse(completion[0]["content"], extraction_config=[LatexExtractionConfig(boxed_match_priority=0)])
        scores.append(float(verify(gold, found)) if gold else 1.0)
    return scores


def format_reward(completions, **kwargs):
    pattern = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    return [float(bool(re.match(pattern, one[0]["content"], re.DOTALL | re.MULTILINE))) for one in completions]
