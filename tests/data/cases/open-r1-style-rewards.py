def format_reward(completions, **k):
    return [1.0] * len(completions)


def len_reward(completions, **k):
    return [float(len(c)) for c in completions]
