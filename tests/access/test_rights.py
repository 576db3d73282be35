"""`allowed` is the law of the server: every face asks it."""

import pytest

from perdure.access.model import HIDDEN, ROLES, Grant, Login, allowed, covers, sees_values
from perdure.kernel.asked import Actor


def login(role, workflows=("*",), values=True):
    return Login(Actor("ann"), (Grant(role, workflows, values),))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("who", ROLES)
def test_a_role_may_what_lower_roles_may(role, who):
    verdict = allowed(login(role), who, "order")

    assert verdict.yes is (ROLES.index(role) >= ROLES.index(who))
    assert verdict.needs == ("" if verdict.yes else who)


def test_a_workflow_without_a_grant_is_hidden():
    assert allowed(login("admin", ("shop-*",)), "viewer", "order") == HIDDEN
    assert allowed(login("admin", ("shop-*",)), "viewer", "shop-order").yes
    assert allowed(Login(Actor("ann")), "viewer", "") == HIDDEN


def test_a_grant_on_some_workflow_is_enough_for_a_list():
    assert allowed(login("viewer", ("shop-*",)), "viewer", "").yes


def test_built_in_instances_are_seen_by_admins_and_changed_by_nobody():
    assert allowed(login("author"), "viewer", "perdure.access") == HIDDEN
    assert allowed(login("admin"), "viewer", "perdure.access").yes
    assert not allowed(login("admin"), "operator", "perdure.access", read=False).yes


def test_an_executor_key_answers_its_executor_and_does_nothing_else():
    key = Login(Actor("printer"), executor="printer")

    assert allowed(key, "executor", executor="printer").yes
    assert allowed(key, "executor", executor="mailer") == HIDDEN
    assert allowed(key, "viewer", "order") == HIDDEN
    assert allowed(login("admin"), "executor", executor="printer") == HIDDEN


def test_the_best_of_several_grants_counts():
    both = Login(Actor("ann"), (Grant("viewer"), Grant("operator", ("order",))))

    assert allowed(both, "operator", "order").yes
    assert allowed(both, "operator", "ship").needs == "operator"


def test_values_can_be_withheld():
    assert sees_values(login("viewer"), "order")
    assert not sees_values(login("operator", values=False), "order")


def test_a_key_has_never_more_rights_than_its_maker():
    admin = [Grant("admin", ("shop-*",))]

    assert covers(admin, [Grant("operator", ("shop-*",)), Grant("viewer", ("shop-order",))])
    assert not covers(admin, [Grant("viewer")])
    assert not covers([Grant("operator")], [Grant("author")])
    assert not covers([Grant("admin", values=False)], [Grant("viewer")])
