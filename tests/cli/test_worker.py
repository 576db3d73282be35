"""`perdure worker`: what it refuses before it claims anything. The rest is in tests/runtime, with real processes."""

SERVER = "postgresql://nobody@127.0.0.1:1/nothing"


def test_a_file_is_served_by_its_engine(world):
    result = world.perdure("worker", "json.tool", "--queue", "images", "--db", "shop.db")

    assert result.exit_code == 2
    assert "shop.db is served by the engine that runs on it: perdure.open(..., queues={'images': 10})" in result.stderr


def test_a_module_that_is_not_there_is_named(world):
    result = world.perdure("worker", "nothing_like_it", "--queue", "images", "--db", SERVER)

    assert result.exit_code == 2
    assert "there is no module 'nothing_like_it'" in result.stderr


def test_a_secret_is_not_taken_from_the_command_line(world):
    result = world.perdure("worker", "json.tool", "--queue", "images", "--key", "k=" + "ab" * 32, "--db", SERVER)

    assert result.exit_code == 2
    assert "--key is ID=env:NAME" in result.stderr and "abab" not in result.stderr


def test_a_secret_that_is_not_set_is_named(world):
    result = world.perdure("worker", "json.tool", "--queue", "images", "--key", "k=env:NOT_SET", "--db", SERVER)

    assert result.exit_code == 2
    assert "NOT_SET" in result.stderr


def test_a_server_that_does_not_answer_is_an_error_of_the_database(world):
    result = world.perdure("worker", "json.tool", "--queue", "images", "--db", SERVER)

    assert result.exit_code == 6
    assert "Traceback" not in result.stderr


def test_a_queue_must_have_a_name_of_its_own(world):
    result = world.perdure("worker", "json.tool", "--queue", "thread", "--db", SERVER)

    assert result.exit_code == 2
    assert "a queue has a name of its own" in result.stderr
