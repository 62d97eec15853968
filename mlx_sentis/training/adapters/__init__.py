"""Adapters on frozen layers, in torch's orientation so that the interchange file is an identity.

Kinds: LoRA, rsLoRA, DoRA by rows and by columns, BoRA, and the -XS form of each; on Linear, Conv1d and
QuantizedLinear. The formulas are in `weights_bridge.adapter_kinds`, the algebra of the norms in `norms`.
"""

from mlx_sentis.training.adapters.file import (
    AdapterFacts,
    base_hashes,
    facts_of,
    file_tensors,
    load_adapter,
    prepare_training,
    put_on,
    save_adapter,
    settings_of,
)
from mlx_sentis.training.adapters.model import (
    adapt,
    adapted_modules,
    adapter_tensors,
    add_adapters,
    module_at,
    quantise,
    require_targets,
    target_modules,
    train_everything,
)
from mlx_sentis.training.adapters.modules import Adapted
from mlx_sentis.training.adapters.targets import choose, grouped

__all__ = [
    "Adapted",
    "AdapterFacts",
    "adapt",
    "adapted_modules",
    "adapter_tensors",
    "add_adapters",
    "base_hashes",
    "choose",
    "facts_of",
    "file_tensors",
    "grouped",
    "load_adapter",
    "module_at",
    "prepare_training",
    "put_on",
    "quantise",
    "require_targets",
    "save_adapter",
    "settings_of",
    "target_modules",
    "train_everything",
]
