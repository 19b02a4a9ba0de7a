"""Races: the same prompt to several models or agents, each in a fork on a copy of the machine; one of them is kept."""
