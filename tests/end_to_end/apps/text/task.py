"""A transformer-like network for sentences: which module's documentation is one of?"""

import importlib
import inspect
import zlib
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader

MODULES = ("argparse", "decimal", "email.message", "logging", "tarfile", "threading")
WORDS, LENGTH = 4096, 24


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 32), nn.Linear(32, len(MODULES))

    def forward(self, input_ids, attention_mask):
        known = attention_mask.unsqueeze(-1).float()
        mean = (self.embed(input_ids) * known).sum(1) / known.sum(1).clamp(min=1)
        return SimpleNamespace(logits=self.head(mean))


def sentences(name):
    module = importlib.import_module(name)
    found = [module.__doc__ or ""]
    for _, thing in inspect.getmembers(module):
        found.append(inspect.getdoc(thing) or "")
        if inspect.isclass(thing):
            found += [inspect.getdoc(part) or "" for _, part in inspect.getmembers(thing)]
    lines = {line.strip() for text in found for line in text.split("\n") if line.count(" ") > 3}
    return sorted(lines)


def encoded(sentence, label):
    words = [1 + zlib.crc32(w.encode()) % (WORDS - 1) for w in sentence.lower().split()][:LENGTH]
    ids = torch.tensor(words + [0] * (LENGTH - len(words)))
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": label}


def load_data(partition_id, num_partitions):
    rows = [encoded(s, k) for k, name in enumerate(MODULES) for s in sentences(name)]
    own = rows[partition_id::num_partitions]
    train, test = own[::2], own[1::2]
    return DataLoader(train, batch_size=16, shuffle=True), DataLoader(test, batch_size=64)


def train_epochs(model, rows, lr):
    optimiser, loss = torch.optim.Adam(model.parameters(), lr=lr / 10), torch.tensor(0.0)
    for _ in range(4):
        for batch in rows:
            optimiser.zero_grad()
            output = model(batch["input_ids"], batch["attention_mask"])
            loss = nn.functional.cross_entropy(output.logits, batch["labels"])
            loss.backward()
            optimiser.step()
    return float(loss)


def right_of(model, rows):
    right = 0
    with torch.no_grad():
        for batch in rows:
            output = model(batch["input_ids"], batch["attention_mask"])
            right += (output.logits.argmax(1) == batch["labels"]).sum().item()
    return right / len(rows.dataset)
