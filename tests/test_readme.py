"""The README's example runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_learns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    exec(compile(example, str(README), "exec"), {})
    untrained, trained, path = capsys.readouterr().out.splitlines()
    assert float(trained.split()[1]) > float(untrained)
    assert path.startswith("[[0, 0], ")
    assert sorted(p.name for p in (tmp_path / "waves").iterdir()) == ["config.json", "model.safetensors"]
