"""Data sets by name. Names map to strings, imported on use, so that a code hash holds only those that it names."""

__all__ = ["SOURCES"]

SOURCES: dict[str, str] = {  # source → its class, a subclass of fednoise_core.data.settings.Dataset
    "digits": "fednoise_core.data.digits:Digits",
    "mnist": "fednoise_core.data.official:MNIST",
    "fashion_mnist": "fednoise_core.data.official:FashionMNIST",
    "cifar10": "fednoise_core.data.official:CIFAR10",
    "cifar100": "fednoise_core.data.official:CIFAR100",
    "svhn": "fednoise_core.data.official:SVHN",
    "npz": "fednoise_core.data.user_npz:Npz",
    "imagefolder": "fednoise_core.data.imagefolder:ImageFolder",
    "encoded": "fednoise_core.data.encoded:Encoded",
    "table": "fednoise_core.data.table:Table",
    "clothing1m": "fednoise_core.data.clothing1m:Clothing1M",
}
