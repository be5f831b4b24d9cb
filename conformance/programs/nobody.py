"""A local user without rights."""
import os
import resource


def become(descriptors):
    """Gives up root's rights, with room for so many descriptors, if the hard limit has it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, descriptors), hard))
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
