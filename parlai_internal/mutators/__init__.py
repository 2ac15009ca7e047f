# ParlAI looks for additional mutators in a package of this name, and users may have one of their
# own: every folder of that name on sys.path belongs to the package.
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
