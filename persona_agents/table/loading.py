"""A table's YAML file as plain data: its syntax, not yet what it says."""

from __future__ import annotations

import os
import re

from persona_agents.errors import PersonaAgentsError


def join(key: str, name) -> str:
    """How errors call what stands under a name within a key."""
    return f"{key}.{name}" if key else str(name)


def load(path: str):
    """
    The YAML file as plain data, with variables of the environment put in.

    :raises PersonaAgentsError: naming the file, and the line or the key
    """
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.load(file, Loader=_loader(yaml))
        return _with_variables(data, path, "")
    except OSError as error:
        raise PersonaAgentsError(f"{path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise PersonaAgentsError(f"{path}: this is no UTF-8 text.") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise PersonaAgentsError(f"{path}: this is no valid YAML. {reason}") from None
    except RecursionError:
        raise PersonaAgentsError(
            f"{path}: this is nested too deeply, or an alias (*) stands within what it means."
        ) from None


def _loader(yaml):
    """
    A loader for which a key that stands twice is an error, where YAML silently takes the last.

    A value that looks like a date or number and is none is an error with its line, too.
    """

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            seen = set()
            for key, _ in node.value:
                name = key.value
                if isinstance(name, str) and name in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {name!r} stands twice", key.start_mark
                    )
                seen.add(name if isinstance(name, str) else id(key))
            return super().construct_mapping(node, deep)

        def construct_object(self, node, deep=False):
            try:
                return super().construct_object(node, deep)
            except (ValueError, OverflowError) as error:  # 2024-02-30
                raise yaml.constructor.ConstructorError(
                    None, None, f"{error}; a text stands in quotes", node.start_mark
                ) from None

    return Loader


def _with_variables(value, path: str, key: str):
    if isinstance(value, dict):
        return {k: _with_variables(v, path, join(key, k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_variables(v, path, key) for v in value]
    if not isinstance(value, str):
        return value

    def replace(match):
        if match[1] not in os.environ:
            raise PersonaAgentsError(
                f"{path}: {key}: the environment variable {match[1]} is not set."
            )
        return os.environ[match[1]]

    return re.sub(r"\$\{(\w+)\}", replace, value)
