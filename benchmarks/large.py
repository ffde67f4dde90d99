"""A training whose epochs last long enough for the energy counter of a GPU (docs/live.md).

A transformer of 57 million parameters, on generated data. It is done after three epochs, so that
predicted and measured trainings differ in time and power alone. On a CPU it is a tiny one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from wattkeeper.live import Session

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
WIDTH, LAYERS, LENGTH, SAMPLES = (768, 8, 256, 12_288) if CUDA else (32, 1, 8, 512)
TOKENS, EPOCHS = 256, 3


class Network(nn.Module):
    """Causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at each position."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
        scores: Tensor = self.head(self.layers(self.tokens(tokens), mask=mask, is_causal=True))
        return scores


def main() -> None:
    """Train with the batch size that the session chooses."""
    samples = torch.randint(TOKENS, (SAMPLES, LENGTH + 1), device=DEVICE)
    with Session(
        "large",
        batch_sizes=(64, 128),
        default_batch_size=64,
        target=EPOCHS,
        max_epochs=EPOCHS,
        eta=0.5 if CUDA else 0.0,
        samples_per_epoch=SAMPLES,
    ) as session:
        model = Network().to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), session.learning_rate(1e-4))
        session.keep(model=model, optimizer=optimizer)

        def train_on(batches: Iterable[Tensor]) -> Iterator[None]:
            for tokens in batches:
                optimizer.zero_grad()
                with torch.autocast(DEVICE, torch.bfloat16):
                    scores = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
                loss.backward()
                optimizer.step()
                yield

        for epoch in session.epochs(
            samples.split(session.batch_size),
            probe=lambda batch_size: train_on(samples.split(batch_size)),
        ):
            for _ in train_on(epoch):
                pass
            session.report(epoch.number)


if __name__ == "__main__":
    main()
