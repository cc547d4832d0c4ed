"""The demo on drawn recordings of several formats, its features held against numpy; and on files it must refuse.

usage: demo_test.py DEMO.py CONVNORM
"""
import importlib.util
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

DEMO, CONVNORM = (str(Path(argument).resolve()) for argument in sys.argv[1:3])
spec = importlib.util.spec_from_file_location("demo", DEMO)
demo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(demo)


def wav(rate, samples, tag, bits, data_size=None):
    """A WAV of `samples` (channels, L) in [-1, 1]; tag 1 is PCM, 3 float, 0xFFFE extensible PCM."""
    if tag == 3:
        data = samples.T.astype("<f4").tobytes()
    else:
        whole = np.round(samples.T.ravel() * (2 ** (bits - 1) - 1)).astype("<i4")
        data = whole.view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()
    channels = len(samples)
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits)
    if tag == 0xFFFE:
        fmt += struct.pack("<HHI", 22, bits, 0) + struct.pack("<H", 1) + bytes.fromhex("000000001000800000aa00389b71")
    chunks = [(b"LIST", b"INFOodd"), (b"fmt ", fmt), (b"data", data)]
    body = b""
    for name, content in chunks:
        size = data_size if name == b"data" and data_size is not None else len(content)
        body += name + struct.pack("<I", size) + content + b"\0" * (len(content) % 2)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def signal(rate, seconds, channels):
    t = np.arange(int(rate * seconds)) / rate
    random = np.random.default_rng(7)
    return np.stack([0.3 * np.sin(2 * np.pi * (300 + 900 * t) * t) + 0.01 * random.standard_normal(t.size)
                     for _ in range(channels)])


class DemoTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)

    def run_demo(self, content):
        recording = self.path / "recording.wav"
        recording.write_bytes(content)
        return subprocess.run([sys.executable, DEMO, "--convnorm", CONVNORM, "--output", str(self.path / "out"), str(recording)],
                              capture_output=True, text=True)

    def expect_features(self, rate, samples, tag, bits):
        done = self.run_demo(wav(rate, samples, tag, bits))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("PASS", done.stdout)
        self.assertIn("features.png", done.stdout.splitlines()[-1])
        self.assertEqual((self.path / "out/features.png").read_bytes()[:4], b"\x89PNG")
        y = np.load(self.path / "out/features.npy")[0]

        bank = demo.gammatone_bank(rate, len(samples)).astype(float)
        stride = max(1, round(rate * demo.STEP_SECONDS))
        padded = np.pad(samples, ((0, 0), (bank.shape[2] - 1, 0)))
        z = np.stack([sum(np.correlate(x, w, "valid")[::stride] for x, w in zip(padded, row)) for row in bank])
        z = (z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)
        self.assertEqual(y.shape, z.shape)
        # The file rounds the samples to its bits.
        np.testing.assert_allclose(y, np.maximum(z, 0), atol=2e-2 if bits == 16 else 1e-3)

    def test_mono_pcm16(self):
        self.expect_features(16000, signal(16000, 0.15, 1), 1, 16)

    def test_stereo_extensible_pcm24_is_mixed_down(self):
        self.expect_features(44100, signal(44100, 0.12, 2), 0xFFFE, 24)

    def test_float_at_a_low_rate(self):
        self.expect_features(8000, signal(8000, 0.11, 3), 3, 32)

    def test_silence_gives_zeros(self):
        done = self.run_demo(wav(16000, np.zeros((1, 3200)), 1, 16))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(np.load(self.path / "out/features.npy").any())

    def expect_refusal(self, content, words):
        done = self.run_demo(content)
        self.assertEqual(done.returncode, 1)
        self.assertIn(words, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)

    def test_too_short_is_refused(self):
        self.expect_refusal(wav(16000, signal(16000, 0.09, 1), 1, 16), "0.090 s; give a recording of 0.1 s or more")

    def test_other_files_are_refused(self):
        self.expect_refusal(b"fLaC and so on", "is no WAV file")
        self.expect_refusal(b"", "is no WAV file")

    def test_a_damaged_header_is_refused(self):
        whole = wav(16000, signal(16000, 0.2, 1), 1, 16)
        self.expect_refusal(whole[:30], "the file is damaged")
        self.expect_refusal(whole.replace(b"fmt ", b"fmt_"), "the file is damaged")

    def test_samples_that_convnorm_cannot_read_are_refused(self):
        whole = wav(16000, signal(16000, 0.2, 1), 1, 16)
        self.expect_refusal(whole.replace(struct.pack("<HHI", 1, 1, 16000), struct.pack("<HHI", 0x7777, 1, 16000)), "audio")

    def test_a_missing_file_is_refused(self):
        done = subprocess.run([sys.executable, DEMO, "/nonexistent.wav"], capture_output=True, text=True, cwd=self.path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent.wav cannot be read", done.stderr)


unittest.main(argv=sys.argv[:1])
