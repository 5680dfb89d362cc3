"""Predicts a property of molecules with a message-passing network."""
# mistake readout: looped-samples, looped-calls, single-samples, python-in-step
# mistake collate: main-process-data, waiting-for-data, python-in-step, rebuilt-tensors
# mistake degree: looped-samples, looped-calls, python-in-step, rebuilt-tensors
# mistake norms: looped-parameters, host-metrics
import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

ATOMS, BONDS, HIDDEN, LAYERS = 12, 4, 96, 3


@dataclass
class Molecule:
    atoms: list[int]
    edges: list[tuple[int, int]]
    bonds: list[int]
    target: float


def random_molecule(rng: random.Random) -> Molecule:
    n = rng.randint(12, 36)
    edges, bonds = [], []
    for i in range(1, n):
        j = rng.randrange(max(0, i - 4), i)
        kind = rng.randrange(BONDS)
        edges += [(i, j), (j, i)]
        bonds += [kind, kind]
    atoms = [rng.randrange(ATOMS) for _ in range(n)]
    return Molecule(atoms, edges, bonds, sum(atoms) / n)


class Molecules(Dataset):
    def __init__(self, size: int):
        rng = random.Random(0)
        self.molecules = [random_molecule(rng) for _ in range(size)]
        self.ready = [
            (torch.tensor(m.atoms), torch.tensor(m.edges).T, torch.tensor(m.bonds), m.target)
            for m in self.molecules
        ]

    def __len__(self) -> int:
        return len(self.molecules)

    def __getitem__(self, index: int):
        return self.molecules[index]  #- collate
        #+ collate: return self.ready[index]


def collate(batch):
    #+ collate: sizes = torch.tensor([len(one[0]) for one in batch])
    #+ collate: starts = (sizes.cumsum(0) - sizes).tolist()
    #+ collate: atoms = torch.cat([one[0] for one in batch])
    #+ collate: edges = torch.cat([one[1] + s for one, s in zip(batch, starts)], dim=1)
    #+ collate: bonds = torch.cat([one[2] for one in batch])
    #+ collate: owner = torch.repeat_interleave(torch.arange(len(batch)), sizes)
    #+ collate: return atoms, edges, bonds, owner, torch.tensor([one[3] for one in batch])
    atoms, src, dst, bonds, owner = [], [], [], [], []  #- collate
    offset = 0  #- collate
    for index, molecule in enumerate(batch):  #- collate
        for atom in molecule.atoms:  #- collate
            atoms.append(atom)  #- collate
            owner.append(index)  #- collate
        for (i, j), kind in zip(molecule.edges, molecule.bonds):  #- collate
            src.append(i + offset)  #- collate
            dst.append(j + offset)  #- collate
            bonds.append(kind)  #- collate
        offset += len(molecule.atoms)  #- collate
    edges = torch.tensor([src, dst])  #- collate
    targets = torch.tensor([m.target for m in batch])  #- collate
    return torch.tensor(atoms), edges, torch.tensor(bonds), torch.tensor(owner), targets  #- collate


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.bond = nn.Embedding(BONDS, HIDDEN)
        self.message = nn.Sequential(nn.Linear(2 * HIDDEN, HIDDEN), nn.ReLU())
        self.update = nn.GRUCell(HIDDEN, HIDDEN)

    def forward(self, h: Tensor, edges: Tensor, bonds: Tensor, degree: Tensor) -> Tensor:
        src, dst = edges
        messages = self.message(torch.cat([h[src], self.bond(bonds)], dim=-1))
        gathered = torch.zeros_like(h).index_add(0, dst, messages) / degree.unsqueeze(-1)
        return self.update(gathered, h)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ATOMS, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def degree(self, edges: Tensor, nodes: int) -> Tensor:
        #+ degree: return torch.bincount(edges[1], minlength=nodes).clamp(min=1).float()
        degrees = [(edges[1] == node).sum() for node in range(nodes)]  #- degree
        return torch.stack(degrees).clamp(min=1).float()  #- degree

    def readout(self, h: Tensor, owner: Tensor, graphs: int) -> Tensor:
        #+ readout: counts = torch.bincount(owner, minlength=graphs).unsqueeze(-1)
        #+ readout: return h.new_zeros(graphs, HIDDEN).index_add(0, owner, h) / counts
        pooled = []  #- readout
        for graph in range(graphs):  #- readout
            pooled.append(h[owner == graph].mean(dim=0))  #- readout
        return torch.stack(pooled)  #- readout

    def forward(self, atoms: Tensor, edges: Tensor, bonds: Tensor, owner: Tensor, graphs: int):
        h = self.embed(atoms)
        degree = self.degree(edges, len(atoms))
        for layer in self.layers:
            h = layer(h, edges, bonds, degree)
        return self.head(self.readout(h, owner, graphs)).squeeze(-1)


def main() -> None:
    torch.manual_seed(0)
    loader = DataLoader(Molecules(2000), batch_size=64, shuffle=True, collate_fn=collate)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    largest = 0.0
    for _ in range(20):
        for atoms, edges, bonds, owner, target in loader:  #: collate
            prediction = network(atoms, edges, bonds, owner, len(target))
            loss = nn.functional.l1_loss(prediction, target)
            optimizer.zero_grad()
            loss.backward()
            #+ norms: largest = nn.utils.clip_grad_norm_(network.parameters(), 1e9)
            for name, p in network.named_parameters():  #- norms
                if p.grad is not None:  #- norms
                    largest = max(largest, p.grad.norm().item())  #- norms
            optimizer.step()
            # end of step


if __name__ == "__main__":
    main()
