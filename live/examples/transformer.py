"""A small transformer that predicts the next token, which mostly follows from the last two.

Run it again and again (`python -m wattkeeper.live.examples.transformer`): each run is a recurrence
of the job, and learns from the earlier ones which batch size costs least.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wattkeeper.live import Session

TOKENS, LENGTH, WIDTH = 16, 24, 64
TRAIN, VALID = 2048, 512
REGULAR_SHARE = 0.9
TARGET = 0.8


def make_sequences(seed: int, count: int) -> Tensor:
    """Sequences, shape (count, LENGTH), of a noisy chain of order two that all seeds share."""
    successors = torch.randint(TOKENS, (TOKENS, TOKENS), generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(TOKENS, (count, LENGTH), generator=generator)
    regular = torch.rand(count, LENGTH, generator=generator) < REGULAR_SHARE
    for step in range(2, LENGTH):
        following = successors[tokens[:, step - 2], tokens[:, step - 1]]
        tokens[:, step] = torch.where(regular[:, step], following, tokens[:, step])
    return tokens


class Network(nn.Module):
    """Two layers of causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at each position, shape (batch, length, TOKENS)."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, tokens.device)
        hidden = self.tokens(tokens) + self.positions[:length]
        scores: Tensor = self.head(self.layers(hidden, mask=mask, is_causal=True))
        return scores


def main() -> None:
    """Train to the target with the batch size that the session chooses."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, valid = (make_sequences(seed, n).to(device) for seed, n in ((1, TRAIN), (2, VALID)))
    with Session(
        "transformer",
        batch_sizes=(16, 32, 64, 128, 256),
        default_batch_size=64,
        target=TARGET,
        max_epochs=40,
        eta=0.5 if device == "cuda" else 0.0,  # few CPUs measure their energy
    ) as session:
        torch.manual_seed(session.assignment.recurrence)
        model = Network().to(device)
        optimizer = torch.optim.Adam(model.parameters(), session.learning_rate(1e-3, "square-root"))
        data = torch.utils.data.TensorDataset(train)
        session.keep(model=model, optimizer=optimizer)
        loader = torch.utils.data.DataLoader(data, session.batch_size, shuffle=True)
        for epoch in session.epochs(loader):
            model.train()
            for (tokens,) in epoch:
                optimizer.zero_grad()
                scores, targets = model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
                loss = nn.functional.cross_entropy(scores, targets)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            model.eval()
            with torch.no_grad():
                correct = model(valid[:, :-1]).argmax(2) == valid[:, 1:]
            session.report(float(correct[:, 2:].float().mean()))


if __name__ == "__main__":
    main()
