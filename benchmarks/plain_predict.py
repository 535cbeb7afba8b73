"""What `unbag predict` is compared with: the same job with pandas and torch, the obvious way.

usage: python benchmarks/plain_predict.py NETWORK.pt ROWS.parquet OUTPUT.parquet

NETWORK.pt holds means and deviations of the columns, the weights and the calibration.
"""

import sys

import pandas as pd
import torch
from torch import nn

network, source, output = sys.argv[1:]
saved = torch.load(network)
frame = pd.read_parquet(source, columns=saved["columns"])
rows = torch.tensor(((frame - saved["mean"]) / saved["scale"]).to_numpy("float32"))
del frame
model = nn.Sequential(
    nn.Linear(rows.shape[1], 300),
    nn.ReLU(),
    nn.BatchNorm1d(300),
    nn.Linear(300, 300),
    nn.ReLU(),
    nn.BatchNorm1d(300),
    nn.Linear(300, len(saved["classes"])),
)
model.load_state_dict(saved["weights"])
model.eval()
chances = torch.empty(len(rows), len(saved["classes"]))
with torch.no_grad():
    for i in range(0, len(rows), 8192):
        logits = model(rows[i : i + 8192])
        chances[i : i + 8192] = torch.softmax(logits / saved["temperature"] + saved["biases"], 1)
chances = chances.numpy()
result = pd.DataFrame(chances, columns=[f"p_{name}" for name in saved["classes"]])
result.insert(0, "class", pd.Series(saved["classes"]).take(chances.argmax(1)).to_numpy())
result.insert(0, "row", range(len(result)))
result.to_parquet(output)
