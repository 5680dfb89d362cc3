"""One self-contained page: a diagnosis, or a comparison of two, to open and share."""

from boundby.report.page.document import comparison_page, diagnosis_page, in_notebook

__all__ = ["comparison_page", "diagnosis_page", "in_notebook"]
