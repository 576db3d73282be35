"""What users make: a playbook from text. Reading the file is for those who may do I/O (`perdure.load_playbook`)."""

from .workflow import PlaybookWorkflow, from_text

__all__ = ["PlaybookWorkflow", "from_text"]
