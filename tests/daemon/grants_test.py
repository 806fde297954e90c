"""What one user's sections are to other users: sections of memory and of files, with real user ids."""

import os
import tempfile
import unittest

import numpy

from files_test import BLOCK, READ_WRITE, Client, ids, strided, t
from harness import *

OWNER, NAMED, STRANGER = 13001, 13002, 13003


@unittest.skipIf(os.geteuid() != 0, "needs root to become other users")
class Grants(DaemonTest):
    FLAGS = ("--socket-mode", "0666")

    def setUp(self):
        self.names = iter(f"{self.id()}-{i}" for i in range(100))

    def client(self, uid):
        name = next(self.names)
        client = Client(self, name, session=self.session(name, uid=uid))
        client.memory[:] = uid % 251
        return client

    def sections(self, owner):
        """A section of memory and one of a file that no other user could open, by their names."""
        file = tempfile.NamedTemporaryFile(prefix="shunt-private-")
        self.addCleanup(file.close)
        os.fchmod(file.fileno(), 0o600)
        file.write(b"f" * 4 * BLOCK)
        file.flush()
        region = owner.pass_path(file.name, os.O_RDWR, READ_WRITE)
        self.file = file.name
        return {"memory": owner.blocks(4), "file": [strided(region, 0, BLOCK, (4, BLOCK))]}

    def contents(self, owner, kind):
        if kind == "memory":
            return bytes(owner.memory[: 4 * BLOCK])
        with open(self.file, "rb") as file:
            return file.read()

    def test_a_section_of_ones_own_user_is_nothing_to_others(self):
        owner, stranger, own_kind = self.client(OWNER), self.client(STRANGER), self.client(OWNER)
        for kind, sets in self.sections(owner).items():
            with self.subTest(kind):
                owner.publish(kind, sets)
                for access in (t.SECTION_ACCESS_READ, t.SECTION_ACCESS_WRITE):
                    with self.refused(NOT_FOUND, owner.name, f"user {STRANGER}"):
                        stranger.fetch(owner.name, kind, access=access)
                remote = own_kind.fetch(owner.name, kind, access=t.SECTION_ACCESS_READ_WRITE).list.list_id
                own_kind.move(own_kind.prepare(own_kind.blocks(4)).list_id, remote)
                self.assertEqual(bytes(own_kind.memory[: 4 * BLOCK]), self.contents(owner, kind))

    def test_another_users_lists_and_regions_are_no_way_in(self):
        owner, stranger = self.client(OWNER), self.client(STRANGER)
        for kind, sets in self.sections(owner).items():
            with self.subTest(kind):
                list_id = owner.prepare(sets).list_id
                region = sets[0].region_id
                with self.refused(NOT_FOUND, f"list {list_id}"):
                    stranger.post(stranger.prepare(stranger.blocks(4)).list_id, list_id)
                with self.refused(NOT_FOUND, f"region {region}"):
                    stranger.prepare(sets)
                with self.refused(NOT_FOUND, f"region {region}"):
                    stranger.free(region)

    def test_a_named_user_reads_and_does_not_write(self):
        owner, named, stranger = self.client(OWNER), self.client(NAMED), self.client(STRANGER)
        for kind, sets in self.sections(owner).items():
            with self.subTest(kind):
                before = self.contents(owner, kind)
                owner.publish(kind, sets, access=t.SECTION_ACCESS_READ, tenants=[NAMED])
                own = named.prepare(named.blocks(4)).list_id
                remote = named.fetch(owner.name, kind).list.list_id
                named.memory[: 4 * BLOCK] = 0
                named.move(own, remote)
                self.assertEqual(bytes(named.memory[: 4 * BLOCK]), before)
                # Neither asked for when it is fetched, nor posted all the same.
                for access in (t.SECTION_ACCESS_WRITE, t.SECTION_ACCESS_READ_WRITE):
                    with self.refused(PERMISSION_DENIED, kind, "published for reading", f"not for writing by user {NAMED}"):
                        named.fetch(owner.name, kind, access=access)
                named.memory[: 4 * BLOCK] = 255
                with self.refused(PERMISSION_DENIED, kind, "published for reading", f"not for writing by user {NAMED}"):
                    named.move(own, remote, push=True)
                self.assertEqual(self.contents(owner, kind), before)
                with self.refused(NOT_FOUND, owner.name, f"user {STRANGER}"):
                    stranger.fetch(owner.name, kind)

    def test_a_grant_that_is_taken_back_is_over(self):
        owner, named = self.client(OWNER), self.client(NAMED)
        for kind, sets in self.sections(owner).items():
            with self.subTest(kind):
                owner.publish(kind, sets, tenants=[NAMED])
                remote = named.fetch(owner.name, kind, access=t.SECTION_ACCESS_READ_WRITE).list.list_id
                own = named.prepare(named.blocks(4)).list_id
                named.memory[: 4 * BLOCK] = 7
                named.move(own, remote, push=True)
                self.assertEqual(self.contents(owner, kind), b"\7" * 4 * BLOCK)
                owner.publish(kind, sets)  # for its own user alone from now on
                with self.refused(FAILED_PRECONDITION, kind):
                    named.move(own, remote)
                with self.refused(NOT_FOUND, f"user {NAMED}"):
                    named.fetch(owner.name, kind)

    def test_a_wrong_grant_is_refused_in_words(self):
        owner = self.client(OWNER)
        for kind, sets in self.sections(owner).items():
            with self.refused(INVALID_ARGUMENT, "65 user ids", "at most 64"):
                owner.publish(kind, sets, tenants=list(range(65)))
            with self.refused(INVALID_ARGUMENT, "access 9", "expected 1 (read)"):
                owner.publish(kind, sets, access=9)
        # What one may not do oneself one can't give: the file is open for reading alone.
        reading = owner.pass_path(self.file)
        owner.publish("reading", [strided(reading, 0, BLOCK)], tenants=[NAMED])
        named = self.client(NAMED)
        remote = named.fetch(owner.name, "reading", access=t.SECTION_ACCESS_READ_WRITE).list.list_id
        with self.refused(PERMISSION_DENIED, f"region {reading}", "opened for reading"):
            named.move(named.prepare(named.blocks(1)).list_id, remote, push=True)


if __name__ == "__main__":
    unittest.main()
