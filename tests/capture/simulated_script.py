"""A script as the step finder sees it: calls, backwards and optimizer steps."""

from boundby.capture.process.step_finder import StepBy, StepFinder
from boundby.capture.torch.shapes import Shape


class SimulatedScript:
    """A loop's events, played to a finder; `ends` has the kind of every step that ended."""

    def __init__(self, step_by: StepBy = "auto", optimizers: int = 0) -> None:
        self.ends: list[str] = []
        self.restarts = 0
        self.finder = StepFinder(step_by, self.ends.append, self._restart)
        for number in range(optimizers):
            self.finder.optimizer_made(100 + number)

    def _restart(self) -> None:
        self.restarts += 1

    def train(self, shape: Shape = (32, 8), model: int = 0) -> None:
        self.finder.called(model, True, shape)

    def evaluate(self, shape: Shape = (32, 8), model: int = 0) -> None:
        self.finder.called(model, False, shape)

    def step(self, optimizer: int = 0) -> None:
        self.finder.optimizer_stepped(100 + optimizer)
