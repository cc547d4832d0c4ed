import os
import pathlib
import sys

# Threads that wait do not hold up others on a machine that is shared. Before PyTorch starts its pool.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch  # noqa: E402

# Helpers beside the tests.
sys.path.insert(0, str(pathlib.Path(__file__).parent))
torch.set_num_threads(2)
