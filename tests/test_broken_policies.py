"""Policies that are damaged on disk: each is refused when it is loaded, with a sentence that names what is wrong."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from tests import reward_models
from workbench.config import ModelConfig
from workbench.errors import PolicyError, RewardError
from workbench.models import weights
from workbench.policies.load import load_policy
from workbench.policies.prompts import find_chat_template
from workbench.rewards.models.model import LocalModels


@pytest.fixture
def folder(tiny, tmp_path):
    """A copy of the embedded policy to be damaged."""
    tiny.model.save_pretrained(tmp_path / "policy")
    tiny.tokenizer.save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


def edit_json(file, **changes):
    data = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in data.items() if value is not ...}))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def refusal(folder, **options):
    with pytest.raises(PolicyError) as caught:
        load_policy(str(folder), device="cpu", **options)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


UP = "model.layers.1.mlp.up_proj.weight"


def test_a_gguf_file_that_was_not_read_yet_has_no_known_chat_template(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    assert find_chat_template(str(file)) is None


def test_a_gguf_file_without_the_package_that_reads_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.policies.load.find_spec", lambda name: None)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(PolicyError, match="pip install gguf"):
        load_policy(str(file))


@pytest.mark.parametrize("kept", [0, 4, 5_000])
def test_a_torn_weights_file_is_called_torn(folder, kept):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert "torn" in refusal(folder)
    reward_models.save("token", folder.parent / "scores")
    file = folder.parent / "scores" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(RewardError, match=r"scores' .*torn"):
        LocalModels("cpu").prepare(ModelConfig(path=str(folder.parent / "scores"), format="stepwise"))


def test_pickled_weights_alone_are_named(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "pytorch_model.bin" in refusal(folder)


def test_a_folder_without_a_tokenizer_says_how_to_save_one(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert "tokenizer.save_pretrained" in refusal(folder)


@pytest.mark.parametrize(
    ("size", "value"),
    [("num_attention_heads", 0), ("num_key_value_heads", 0), ("num_hidden_layers", -1), ("hidden_size", 0)],
)
def test_a_size_below_one_is_named(folder, size, value):
    edit_json(folder / "config.json", **{size: value})
    assert f"{size} is {value} in its config.json" in refusal(folder)


def test_weights_that_are_not_finite_are_refused(folder):
    edit_tensors(folder, lambda tensors: tensors[UP][3, 5:7].fill_(torch.inf))
    assert f"2 of 49,152 values of tensor {UP}" in refusal(folder)  # 128 × 384
    edit_tensors(folder, lambda tensors: [tensor.fill_(torch.nan) for tensor in tensors.values()])
    assert "40,960 of 40,960 values of tensor model.embed_tokens.weight" in refusal(folder)  # 320 × 128
    assert "in 38 tensors" in refusal(folder)  # 4 layers of 9 tensors, embeddings and the last norm


def test_missing_tensors_are_refused_and_tied_ones_are_not_missing(folder, tiny):
    assert tiny.model.config.tie_word_embeddings
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    load_policy(str(folder), device="cpu")
    edit_tensors(folder, lambda tensors: tensors.pop(UP))
    assert f"the weights hold no {UP}" in refusal(folder)


def test_unexpected_tensors_are_refused_inside_the_model_and_harmless_beside_it(folder):
    edit_tensors(folder, lambda tensors: tensors.update({"v_head.weight": torch.zeros(1, 128)}))
    load_policy(str(folder), device="cpu")  # a value head that PPO left there
    edit_json(folder / "config.json", num_hidden_layers=3)
    message = refusal(folder)
    assert "the weights hold model.layers.3.input_layernorm.weight" in message
    assert "and 6 more" in message
    edit_json(folder / "config.json", num_hidden_layers=4)
    edit_tensors(folder, lambda tensors: tensors.update({UP.replace("weight", "bias"): torch.zeros(384)}))
    assert "the weights hold model.layers.1.mlp.up_proj.bias" in refusal(folder)


def test_shapes_other_than_the_configurations_are_named(folder):
    edit_json(folder / "config.json", intermediate_size=64)
    assert "down_proj.weight is (128, 384) in the file and (128, 64) by config.json, one of 12" in refusal(folder)


def test_a_model_larger_than_memory_is_refused_before_it_is_built(folder, monkeypatch):
    # 320 × 128 embeddings; a layer 4 × 128² + 3 × 128 × 384 + 2 × 128; the last norm: 894,080 of 4 bytes
    monkeypatch.setattr(weights, "free_memory", lambda device: 3_576_320)
    load_policy(str(folder), device="cpu")
    monkeypatch.setattr(weights, "free_memory", lambda device: 3_576_319)
    message = refusal(folder)
    assert "894,080 parameters take 3.6 MB" in message
    load_policy(str(folder), device="cpu", dtype="bfloat16")


def test_a_tokenizer_of_another_model_is_refused(folder, tiny, tmp_path):
    for file in folder.glob("tokenizer*"):
        shutil.move(file, tmp_path / file.name)
    assert "tokenizer" in refusal(folder)
    larger = reward_models.tokenizer()
    larger.add_tokens([f"word{i}" for i in range(340 - len(larger))])
    larger.save_pretrained(folder)
    assert "has token ids up to 339 ('word29')" in refusal(folder)
    assert "and the model embeds 320 tokens" in refusal(folder)
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(**size, vocab_size=1000, eos_token_id=0)).save_pretrained(folder)
    assert "token ids and the model embeds 1,000 tokens; that is another model's" in refusal(folder)
    LlamaForCausalLM(LlamaConfig(**size, vocab_size=400, eos_token_id=300)).save_pretrained(folder)
    plain = larger.convert_ids_to_tokens(300)
    assert f"token 300 ends an answer by its configuration and is plain {plain!r} in its tokenizer" in refusal(folder)


def test_a_policy_whose_answers_nothing_ends_is_refused(folder):
    edit_json(folder / "tokenizer_config.json", eos_token=..., pad_token=...)
    load_policy(str(folder), device="cpu")  # its generation_config.json names the end; padding takes the same token
    edit_json(folder / "config.json", eos_token_id=None, pad_token_id=None)
    (folder / "generation_config.json").unlink()
    assert "nothing would end an answer: neither its tokenizer nor its generation_config.json" in refusal(folder)


def test_an_adapter_of_another_base_and_a_broken_one_are_refused(folder, tmp_path):
    from peft import LoraConfig, get_peft_model

    model = LlamaForCausalLM.from_pretrained(folder)
    lora = LoraConfig(r=2, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
    get_peft_model(model, lora).save_pretrained(tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if "layers.1" in name)

    def refused(**changed):
        save_file({name: tensor for name, tensor in (tensors | changed).items() if tensor is not None}, file)
        with pytest.raises(PolicyError, match=r"^adapter .*") as caught:
            load_policy(str(folder), str(tmp_path / "adapter"), device="cpu")
        return str(caught.value)

    assert f"adapter_model.safetensors holds no {name}; it was trained on another base" in refused(**{name: None})
    deeper = name.replace("layers.1", "layers.9")
    assert f"holds {deeper}, for which this base has no place" in refused(**{deeper: tensors[name].clone()})
    assert "NaN" in refused(**{name: tensors[name] * torch.nan})
    assert "size mismatch" in refused(**{name: torch.zeros(3, 3)})
