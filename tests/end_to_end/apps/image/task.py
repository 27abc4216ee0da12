"""A convolutional network for handwritten digits of 8 x 8 pixels."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 16, 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.fc(x.flatten(1))


def load_data(partition_id, num_partitions):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    rows = [{"img": x, "label": int(y)} for x, y in zip(images, digits.target, strict=True)]
    own = rows[partition_id::num_partitions]
    cut = len(own) // 2
    return DataLoader(own[:cut], batch_size=16, shuffle=True), DataLoader(own[cut:], batch_size=64)


def train_epochs(model, rows, lr):
    optimiser, loss = torch.optim.SGD(model.parameters(), lr=lr), torch.tensor(0.0)
    model.train()
    for _ in range(4):
        for batch in rows:
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(batch["img"]), batch["label"])
            loss.backward()
            optimiser.step()
    return float(loss)


def right_of(model, rows):
    model.eval()
    with torch.no_grad():
        right = sum((model(b["img"]).argmax(1) == b["label"]).sum().item() for b in rows)
    return right / len(rows.dataset)
