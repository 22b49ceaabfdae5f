from tests.models.conftest import one_thread  # noqa: F401
