"""Inputs of tiny models, by the names in the signature of forward. Images and sounds have several
shapes; eager attention says which of them it takes, and how many placeholder tokens they need."""

import inspect
import itertools
import re

import torch

from attention_modules import Reached
from model_comparison import NotTested, tensors
from tiny_models import HEAD_DIM, HEADS, TOKENS, VOCAB, WIDTH

MISMATCH = re.compile(r"tokens\D*(\d+)\D+(\d+)")
PLACEHOLDERS = {"image": ["image_token_id", "image_token_index", "image_patch_id"],
                "audio": ["audio_token_id", "audio_token_index", "audio_tokens_id"],
                "video": ["video_token_id", "video_token_index"]}
TEXT_BEFORE = 5  # padding on the left hides four
EPISODES = ["states", "actions", "rewards", "returns_to_go", "timesteps"]
IMAGES = {"pixel_values", "hidden_states", "flattened_patches"}
SOUNDS = {"input_features", "input_values", "audio_values", "audio_mel"}


def fitting(model):
    """(inputs, complaint): the inputs that eager attention takes and that reach most attention modules,
    and what it says of richer ones. Raises what it says if it takes none."""
    best, reached, complaint, error = None, -1, "", None
    for form in _forms(model):
        try:
            given, ran = _accepted(model, form)
        except Exception as failed:
            error = error or failed
            complaint = complaint or f"{type(failed).__name__}: {' '.join(str(failed).split())}"
            continue
        if len(ran.ran) > reached:
            best, reached = given, len(ran.ran)
        if reached == len(ran.modules):
            return best, ""
    if best is None:
        raise error
    return best, complaint


def _forms(model):
    """Candidates, the richest first."""
    names = inspect.signature(model.forward).parameters
    required = {name for name, p in names.items() if p.default is p.empty
                and p.kind is p.POSITIONAL_OR_KEYWORD} | {model.main_input_name}
    choices = []
    for kinds, made in ((IMAGES, _images), (SOUNDS, _sounds)):
        asked = kinds & names.keys()
        optional = [] if asked & required and "input_ids" not in names else [{}]
        choices.append([*made(model.config, names), *optional] if asked else [{}])
    for parts in itertools.product(*choices):
        draw = torch.Generator().manual_seed(1)
        found = _text(model.config, names, draw)
        wanted = [*sorted(required), "decoder_input_ids", "bbox", *EPISODES]
        for name in wanted:
            if name in names and name not in found and not any(name in part for part in parts):
                value = _input(name, model.config, draw)
                if value is not None:
                    found[name] = value
        for part in parts:
            found.update({name: value for name, value in part.items() if name in names})
        yield found


def _text(config, names, draw):
    if "input_ids" not in names:
        return {}
    return {"input_ids": torch.randint(3, VOCAB - 64, (2, TOKENS), generator=draw),
            "attention_mask": torch.ones(2, TOKENS, dtype=torch.long)}


def _accepted(model, given):
    """The inputs with as many placeholders as eager attention asks for and whatever else it names."""
    names, counts = inspect.signature(model.forward).parameters, _guess(model.config, given)
    for attempt in itertools.count():
        filled = _with_placeholders(model.config, given, counts, names)
        reached = Reached(model)
        try:
            with torch.no_grad():
                found = tensors(model(**filled)).values()
            if found and not any(x.isfinite().any() for x in found):
                raise NotTested("eager attention gives no finite number")
            return filled, reached
        except Exception as error:
            if attempt == 4 or not _mend(str(error), model, given, counts, names):
                raise
        finally:
            reached.close()


def _mend(message, model, given, counts, names):
    """Whether there was something to do about an error."""
    found = MISMATCH.search(message)
    if found and "input_ids" in given:
        tokens, features = (int(x) for x in found.groups())
        features //= WIDTH if features > 96 and features % WIDTH == 0 else 1  # counted in numbers
        asked = next((kind for kind in PLACEHOLDERS if kind in message.lower()), "image")
        if _placeholder(model.config, asked) is None or features % 2 or not 0 < features <= 96:
            return False
        counts[asked] = features // 2
        return tokens != features
    draw = torch.Generator().manual_seed(4)
    missing = {name: _input(name, model.config, draw) for name in names
               if name in message and name not in given}
    missing = {name: value for name, value in missing.items() if value is not None}
    given.update(missing)
    return bool(missing)


def _guess(config, given):
    count = _first(config, ["num_query_tokens", "image_seq_length", "mm_tokens_per_image"], 4)
    return {kind: count for kind, inputs in (("image", IMAGES), ("audio", SOUNDS))
            if inputs & given.keys() and "input_ids" in given
            and _placeholder(config, kind) is not None}


def _placeholder(config, kind):
    return _first(config, PLACEHOLDERS[kind], None)


def _with_placeholders(config, given, counts, names):
    if not counts:
        return dict(given)
    ids, kinds = [given["input_ids"][:, :TEXT_BEFORE]], [torch.zeros(2, TEXT_BEFORE).long()]
    for kind, count in counts.items():
        start = _first(config, [f"{'vision' if kind == 'image' else kind}_start_token_id"], None)
        run = ([start] if start is not None else []) + [_placeholder(config, kind)] * count
        ids.append(torch.tensor([run, run]))
        kinds.append((ids[-1] == run[-1]).long() * (3 if kind == "audio" else 1))
    ids.append(given["input_ids"][:, TEXT_BEFORE:])
    kinds.append(torch.zeros(ids[-1].shape).long())
    found = {**given, "input_ids": torch.cat(ids, 1)}
    found["attention_mask"] = torch.ones_like(found["input_ids"])
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in names:
            found[name] = torch.cat(kinds, 1)
    return {name: value for name, value in found.items() if name in names}


def _parts(config):
    """The configuration and all inside it, towers before the language model."""
    found = [config]
    for name in sorted(getattr(config, "sub_configs", {}), key=lambda name: "text" in name):
        part = getattr(config, name, None)
        if part is not None and part is not config:
            found += _parts(part)
    return found


def _first(config, names, default):
    for part in _parts(config):
        for name in names:
            if isinstance(getattr(part, name, None), (int, list, tuple)):
                return getattr(part, name)
    return default


def _size(config):
    """(channels, height, width)"""
    size = {"depth_pro": 128}.get(config.model_type, _first(config, ["image_size"], 32))
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return _first(config, ["num_channels", "in_channels", "in_chans"], 3), height, width


def _images(config, names):
    """Whole images, images of several crops or frames, and 16 patches each for towers that take images
    of any size."""
    draw = torch.Generator().manual_seed(1)
    channels, height, width = _size(config)
    whole = torch.randn(2, channels, height, width, generator=draw)
    sizes = {"image_sizes": torch.tensor([[height, width]] * 2)}
    frames = _first(config, ["num_frames", "frames_per_clip"], None)
    if {"grid_thw", "image_grid_thw", "spatial_shapes", "flattened_patches", "pixel_position_ids",
            "image_position_ids", "target_sizes", "image_grid_hw"} & names.keys():
        yield from _patches(config, draw)
    for count in ([frames] if frames else []):
        yield {"pixel_values": whole[:, None].repeat(1, count, 1, 1, 1)}
    yield {"pixel_values": whole, **sizes}
    if "image_sizes" in names:
        yield {"pixel_values": whole}
    for count in (1, 2, 3, 5):
        crops = torch.randn(2, count, channels, height, width, generator=draw)
        yield {"pixel_values": crops, **sizes,
               "image_attention_mask": torch.ones(2, TOKENS, count, dtype=torch.long),
               "pixel_attention_mask": torch.ones(2, count, height, width, dtype=torch.bool)}


def _patches(config, draw):
    size, time = _first(config, ["patch_size"], 8), _first(config, ["temporal_patch_size"], 1)
    size = size if isinstance(size, int) else size[0]
    channels = _first(config, ["in_channels", "num_channels", "in_chans"], 3)
    flat = torch.randn(32, channels * time * size * size, generator=draw)
    grid, shapes = torch.tensor([[1, 4, 4]] * 2), torch.tensor([[4, 4]] * 2)
    places = torch.cartesian_prod(torch.arange(4), torch.arange(4)).expand(2, 16, 2)
    same = {"grid_thw": grid, "image_grid_thw": grid, "merge_sizes": torch.tensor([1, 1]),
            "spatial_shapes": shapes, "target_sizes": shapes, "image_grid_hw": shapes,
            "pixel_position_ids": places, "image_position_ids": places,
            "pixel_attention_mask": torch.ones(2, 16, dtype=torch.long)}
    yield {"pixel_values": flat, "hidden_states": flat, **same}
    batch = flat.view(2, 16, -1)
    placed = torch.cat([places.float() + 1, batch], -1)
    yield {"pixel_values": batch, "flattened_patches": placed, **same}
    yield {"pixel_values": flat.view(32, channels * time, size, size), **same}
    yield {"pixel_values": flat.view(32, channels, time, size, size), **same}
    yield {"pixel_values": flat[:, :channels * size * size].view(2, 16, channels, size, size)
           .permute(0, 2, 3, 1, 4).reshape(2, channels, size, 16 * size), **same}


def _sounds(config, names):
    """Spectrograms with their bins last or first, and waves with and without a channel."""
    draw = torch.Generator().manual_seed(2)
    if not {"input_features", "audio_mel"} & names.keys():
        if hasattr(config, "frequency_stride"):
            yield {"input_values": torch.randn(2, config.max_length, config.num_mel_bins,
                                               generator=draw)}
        for shape in ((2, 4000), (2, 1, 4000)):
            wave = torch.randn(shape, generator=draw)
            yield {"input_values": wave, "audio_values": wave}
        return
    bins = _first(config, ["num_mel_bins", "feature_size", "input_feat_per_channel", "n_mel_bins",
                           "feature_projection_input_dim", "input_feat_size", "mel_bins"], 16)
    source = _first(config, ["max_source_positions"], None)
    for frames in ([2 * source] if source else []) + [32, 200]:
        rows = torch.randn(2, frames, bins, generator=draw)
        real = torch.ones(2, frames, dtype=torch.long)
        masks = {"input_features_mask": real, "feature_attention_mask": real,
                 "audio_mel_mask": real == 0}
        yield {"input_features": rows, "audio_mel": rows, **masks}
        yield {"input_features": rows.mT.contiguous(), **masks}


def _episodes(name, config, draw):
    """Of reinforcement learning: [2, steps, numbers]."""
    if name == "timesteps":
        return torch.arange(4).expand(2, 4)
    width = {"states": "state_dim", "actions": "act_dim"}.get(name)
    return torch.randn(2, 4, getattr(config, width) if width else 1, generator=draw)


def _series(name, config, draw):
    """Of time series: the lags reach back beyond the context."""
    length = config.context_length + max(getattr(config, "lags_sequence", None) or [0])
    features = getattr(config, "num_time_features", 0)
    if name == "past_values":
        channels = getattr(config, "num_input_channels", None)
        shape = (2, length, channels) if channels else (2, length)
        return torch.randn(shape, generator=draw)
    if name == "past_time_features":
        return torch.randn(2, length, features, generator=draw)
    if name == "past_observed_mask":
        return torch.ones(2, length)
    if name == "future_values":
        return torch.randn(2, config.prediction_length, generator=draw)
    return torch.randn(2, config.prediction_length, features, generator=draw)


def _decoder_shape(config):
    """Of sounds, a token for each codebook."""
    books = _first(config, ["num_codebooks"], None)
    if config.model_type == "dia":
        return (2, 7, config.decoder_config.num_channels)
    return (2 * books, 7) if books and config.model_type.startswith("musicgen") else (2, 7)


def _input(name, config, draw):
    if name == "pixel_values_videos":
        frames = _first(config, ["num_frames", "frames_per_clip"], 4)
        return torch.randn(2, frames, *_size(config), generator=draw)
    if name in ("past_values", "past_time_features", "past_observed_mask", "future_values",
                "future_time_features"):
        return _series(name, config, draw)
    if name in EPISODES:
        return _episodes(name, config, draw)
    width = _first(config, ["encoder_hidden_size", "hidden_size", "d_model"], WIDTH)
    heads = (2, HEADS, TOKENS, HEAD_DIM)
    made = {"decoder_input_ids": lambda: torch.randint(3, 30, _decoder_shape(config), generator=draw),
            "bbox": lambda: torch.zeros(2, TOKENS, 4, dtype=torch.long),
            "inputs_embeds": lambda: torch.randn(2, TOKENS, WIDTH, generator=draw),
            "query_embeds": lambda: torch.randn(2, 4, WIDTH, generator=draw),
            "encoder_hidden_states": lambda: torch.randn(2, 8, width, generator=draw),
            "latents": lambda: torch.randn(2, width, 8, generator=draw),
            "shared_kv_states": lambda: {kind: tuple(torch.randn(heads, generator=draw)
                                                     for _ in range(2))
                                         for kind in ("full_attention", "sliding_attention")},
            "freq": lambda: torch.zeros(2, 1, dtype=torch.long),
            "past_values_padding": lambda: torch.zeros(2, config.context_length),
            "qformer_input_ids": lambda: torch.randint(3, 60, (2, TOKENS), generator=draw)}
    return made[name]() if name in made else None
