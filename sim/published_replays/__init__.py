"""Published replays of elastic training on nodes that come and go: Oobleck, Varuna, Bamboo.

They give the numbers of the public artifacts, with their accidents. They are no model of what is
lost: training goes on during pauses, for example.
"""
