"""The English text on which accuracy is measured: passages that are scored, beginnings that are gone on with."""

PASSAGES = (
    """\
The harbour had been built for a trade that no longer existed. For two hundred years ships had brought salt and \
timber to the town and taken herring away, and the warehouses along the quay were as tall as churches. When the \
railway came, the ships went elsewhere, and the herring followed them, or so the old people said. What remained \
were the cranes, which nobody could afford to take down, and a custom that on the first Sunday of May every boat \
that could still float was rowed once around the lighthouse. My grandfather steered the last of the pilot boats. \
He did not talk much, but he knew the name of every rock under the water, and he taught them to me as other \
children are taught the days of the week.""",
    """\
A thermometer does not measure the temperature of a room; it measures its own. This sounds like a joke, yet it \
is the first thing that an engineer has to learn about instruments. The bulb exchanges heat with the air around \
it until both agree, and only then does the reading mean anything. If the air changes faster than the bulb can \
follow, the reading is late, and if the bulb is large compared with what it touches, the reading is wrong, \
because the instrument has warmed or cooled the very thing that it was meant to observe. Good measurements \
therefore begin with a question: how much does the act of looking disturb what we are looking at, and how long \
must we wait?""",
    """\
To make bread you need flour, water, salt and patience. Mix the flour with most of the water and leave it alone \
for half an hour. Then add the salt and the yeast, and knead the dough until it is smooth and springs back when \
you press it with a finger. Cover it with a cloth. In a warm kitchen it will double in size within two hours; in \
a cold one it may take all night, and the bread will be better for it. Shape the loaf, let it rise once more, \
and bake it in an oven that is as hot as you can make it. The crust should be dark, and the loaf should sound \
hollow when you knock on its base.""",
)

BEGINNINGS = (
    "The capital of France is",
    "Water boils at a lower temperature in the mountains because",
    "Once upon a time, in a village at the edge of a forest, there lived",
    "The three most important things to remember when you learn a new language are",
    "In the year 1969, the first people to walk on the Moon",
    "To repair a flat tyre on a bicycle, first",
    "The difference between a list and a tuple in Python is that",
    "Dear Sir or Madam, I am writing to complain about",
)
