"""The tree of messages as a plain dict, id -> message in the order of writing: what the database's own walks are compared with."""


def path_to(messages, leaf):
    """The messages from the root down to `leaf`."""
    path = []
    while leaf is not None:
        path.append(messages[leaf])
        leaf = messages[leaf].parent
    return path[::-1]


def children(messages, parent):
    """The messages right below `parent`, oldest first; None gives the roots."""
    return [message for message in messages.values() if message.parent == parent]


def newest_leaf(messages, start):
    """The end of the branch below `start` that was written last: the newest descendant, because children are newer."""
    below, newest = {start}, start
    for message in messages.values():
        if message.parent in below:
            below.add(message.id)
            newest = message.id
    return newest
