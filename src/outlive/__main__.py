"""`python -m outlive`: the command, as the supervisor starts it."""

from outlive.cli.main import main

main()
