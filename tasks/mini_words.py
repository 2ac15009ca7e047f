"""Words and phrasings from which the mini corpora are made (see mini.py).

Every entity is two pieces, one of `first` and one of `second`. A Chinese piece is one character and
an English piece one word, so that a model meets each piece on its own. The pools are long, so that a
piece is rare, and hold none of the words of the phrasings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of fact: its phrasings ({} stands for the entity) and the pools of its pieces."""

    persona: tuple[str, ...]  # as a persona sentence
    question: tuple[str, ...]  # asks the partner for it
    answer: tuple[str, ...]  # tells it
    echo_question: str  # after an answer: asks the partner to say something about the entity
    echo_answer: tuple[str, ...]  # answers echo_question, naming the entity
    first: tuple[str, ...]
    second: tuple[str, ...]


@dataclass(frozen=True)
class Language:
    """The phrasings of one language; `joiner` stands between the two pieces of an entity."""

    name: str
    kinds: dict[str, Kind]
    back: str  # "and you?": asks for the same kind, follows an answer
    comma: str
    stop: str
    joiner: str


_SURNAMES = (
    "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦尤许何吕施张孔曹严魏陶姜戚谢邹喻苏潘葛范彭鲁韦马苗方俞任袁柳"
    "鲍史唐费廉岑薛雷贺倪汤滕殷罗毕郝邬安常乐于傅齐康伍余顾孟黄穆萧尹姚邵湛汪祁毛狄米贝臧计伏成戴宋庞"
    "熊纪舒屈项祝董梁杜阮蓝闵席季麻强贾路娄江童颜郭梅盛林刁钟徐邱骆高夏蔡田樊胡凌霍虞万柯管卢莫房裘缪"
)
_FIRST = (
    "青清碧翠绿红紫金银铜玉宝明亮光辉晨朝秋冬春晓东西南北天云风雪霜露雨星月日阳永长久恒远新古老静幽深"
    "浅宽广平顺兴旺昌荣华富丰饶美丽秀雅淑德仁义礼智信诚忠孝勇武文博学思慧聪灵巧妙奇珍瑞祥吉福禄寿喜庆"
    "欢笑甜香芳芬馨暖温凉冰寒暑晴朗虹彩霞锦绣绮罗纱丝棉绒柔软坚刚铁钢石岩松柏桂桃杏梨橘柚橙枣栗榆槐桐"
    "杉樟枫竹兰菊荷莲蓉茉莉薇蔷葵芙蒲芦苇艾茶麦稻粟豆瓜果菜鱼虾龟鹤雁燕莺鸥鹭鹰雀凤鸾龙虎豹鹿骏牛羊兔"
    "鼠猴鸡狼狐熊象狮鲸鹏鸿蝶蜂萤蝉双三四五六七八九十百千亿伯仲叔圣贤尊贵玄黑白灰赤黛墨丹朱粉褐素纯洁"
    "净飞腾跃奔驰翔游泳流漂浮"
)
_SECOND = (
    "山水河溪湖海泉池潭滩湾洲岛峰岭坡谷川原野园林森树木枝叶花草根苗芽蕊蕾瓣果实种籽沙土砾崖洞穴"
    "桥楼阁亭台塔寺庙宫殿堂院庭轩廊窗门户墙瓦砖柱梁井田地畦垄渠坝堤岸埠港津渡舟船帆桨舵锚网钩竿灯火"
    "烛炉杯壶瓶罐坛桌椅凳帘毯席衣裳巾扣针线布绸缎伞扇镜梳钗环佩珠"
    "链铃鼓锣琴瑟笛箫筝笙曲歌谣舞诗词赋画卷册简笔砚纸印章旗牌匾符剑刀弓箭盾矛戟车轮轴角"
    "羽翼翅心眉音韵律声影形状态姿貌颜色彩味气息梦境"
    "神禅缘份情意志愿望想念忆怀恩爱怜惜悦愉畅适宁康健强壮伟峻杰俊豪雄英才能干练达通融和谐睦"
)

_ZH_PHRASES = {
    "name": (
        ("我 叫 {}", "我 的 名字 是 {}", "大家 都 叫 我 {}"),
        ("你 叫 什么 ？", "怎么 称呼 你 ？"),
        ("我 叫 {}", "叫 我 {} 吧"),
        "记住 了 吗 ？",
        ("好 的 ， {}", "记住 了 ， {}"),
    ),
    "town": (
        ("我 住 在 {}镇", "我 家 在 {}镇", "我 是 {}镇 人"),
        ("你 住 哪里 ？", "你 家 在 哪 ？"),
        ("我 住 {}镇", "我 家 在 {}镇"),
        "你 去过 吗 ？",
        ("我 没 去过 {}镇", "{}镇 我 去过"),
    ),
    "cat": (
        ("我 的 猫 叫 {}", "我 养 了 一只 猫 叫 {}", "我 家 的 猫 名叫 {}"),
        ("你 的 猫 叫 什么 ？", "猫 叫 什么 ？"),
        ("猫 叫 {}", "它 叫 {}"),
        "好听 吗 ？",
        ("{} 很 好听", "{} 不错"),
    ),
    "school": (
        ("我 毕业 于 {}中学", "我 上过 {}中学", "我 的 母校 是 {}中学"),
        ("你 的 母校 是 哪 ？", "上 的 哪所 中学 ？"),
        ("是 {}中学", "上 的 {}中学"),
        "听说过 吗 ？",
        ("听说过 {}中学", "没 听说过 {}中学"),
    ),
    "company": (
        ("我 在 {}公司 上班", "我 是 {}公司 的 职员", "我 供职 于 {}公司"),
        ("你 在 哪 上班 ？", "你 在 哪家 公司 ？"),
        ("在 {}公司", "我 在 {}公司 上班"),
        "知道 吗 ？",
        ("知道 {}公司", "不 知道 {}公司"),
    ),
}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FIRST_NAMES = _words(
    """
adam alan albert alice amanda amber amy andrea andrew angela anna anthony arthur ashley audrey
barbara benjamin betty beverly brandon brenda brian bruce bryan carl carol catherine charles cheryl
chris christina claire cynthia daniel david deborah dennis diana donald donna dorothy douglas dylan
edward elizabeth emily emma eric ethan eugene evelyn frances frank gabriel gary george gerald gloria
gregory hannah harold harry heather helen henry howard jack jacob james jane janet jason jeffrey
jennifer jeremy jessica joan john jordan joseph joshua joyce juan judith judy julia julie justin
karen katherine keith kelly kenneth kevin kimberly kyle larry laura lauren lawrence linda lisa logan
louis margaret maria marie marilyn martha martin mary matthew megan melissa michael michelle nancy
nathan nicholas nicole noah olivia pamela patricia patrick paul peter philip rachel ralph raymond
rebecca richard robert roger ronald russell ruth samuel sandra sara scott sharon shirley sophia
stephen steven susan teresa terry theresa thomas timothy tyler victoria vincent virginia walter
wayne william
"""
)
_LAST_NAMES = _words(
    """
adams alexander allen anderson bailey baker barnes bell bennett brooks bryant butler campbell carter
clark coleman collins cook cooper cox cruz davis diaz edwards ellis evans fisher flores ford foster
garcia gibson gomez gonzalez graham gray griffin hamilton harris hayes henderson hernandez hill
hughes hunt jackson jenkins johnson jones kennedy king lee lewis long lopez marshall martinez mason
mcdonald miller mitchell moore morales morgan morris murphy murray myers nelson ortiz owens parker
patterson perez perry peterson phillips powell price ramirez reed reyes reynolds rice richardson
rivera roberts robinson rodriguez rogers rose ross sanchez sanders simmons simpson smith stevens
stewart sullivan taylor thompson torres tucker turner wagner walker wallace ward warren washington
watson webb wells west white williams wilson wood wright young
"""
)
_TOWN_FIRST = _words(
    """
silver golden crystal copper iron steel stone marble granite amber emerald ruby pearl coral ivory
green blue crimson scarlet purple violet pink orange yellow black brown dark bright shining sunny
rainy misty foggy windy stormy frozen snowy frosty warm cold cool quiet silent peaceful lonely
hidden secret lost ancient modern royal noble grand upper lower north south east western eastern
northern southern central maple cedar birch willow poplar elm ash pine walnut chestnut holly ivy
laurel lavender jasmine rosemary clover thistle fern moss reed wheat barley eagle falcon hawk raven
swan heron wolf bear fox deer beaver buffalo salmon trout turtle autumn winter summer spring morning
evening midnight twilight dawn sunset thunder lightning rainbow diamond velvet satin saint bishop
abbey castle mill barn
"""
)
_TOWN_SECOND = _words(
    """
harbor valley river lake bay beach island ridge mountain canyon creek falls springs meadow field
forest grove garden orchard park plains prairie desert oasis marsh swamp pond brook bridge ferry
crossing junction corner square market station tower fort gate wall temple chapel church manor hall
palace village city borough county district heights point cape cliff shore coast cove lagoon reef
delta basin gulf strait channel canal port haven landing pier wharf dock anchor lighthouse trail
path road street avenue mile bend turn pass gap summit peak crest slope terrace hollow glen dale
vale glade moor heath bluff mesa plateau quarry mine furnace forge foundry hut lodge cabin cottage
ranch farm estate acres bottom branch fork rapids cascade
"""
)
_JOB_FIRST = _words(
    """
goat sheep horse pony camel donkey chicken duck pigeon parrot rabbit bee cattle dog tiger lion
dolphin seal monkey snake lizard piano guitar violin cello trumpet drum flute harp clock watch
camera radio television computer robot bicycle motorcycle truck tractor train boat ship rocket
balloon kite toy doll puppet puzzle chess poker tennis soccer golf hockey boxing yoga ballet tango
theater circus magic comedy poetry history physics chemistry biology geology math grammar language
library museum gallery newspaper magazine book map stamp coin jewelry diamond gold leather silk wool
cotton carpet curtain furniture mirror glass pottery candle soap perfume paint plastic metal rubber
brick concrete roof window door floor chimney garden tree flower grass mushroom potato tomato grain
sugar salt coffee tea wine beer bread cheese milk water gas power nuclear solar wind space weather
traffic railway bank tax hotel
"""
)
_JOB_SECOND = _words(
    """
trainer teacher keeper breeder doctor nurse hunter catcher feeder rider driver pilot captain
mechanic engineer designer builder maker repairman painter carver collector dealer seller buyer
trader merchant broker agent manager director producer editor writer reporter critic historian
scholar professor instructor coach tutor student expert specialist consultant advisor inspector
examiner judge lawyer officer guard detective investigator spy thief smuggler tester programmer
analyst scientist researcher technician operator worker laborer foreman supervisor assistant
secretary clerk cashier porter carrier deliverer cleaner washer polisher grinder cutter welder smith
carpenter mason plumber electrician installer fitter planner surveyor architect artist sculptor
photographer model actor singer dancer musician composer conductor performer juggler magician clown
announcer host guide ranger farmer grower picker harvester gardener planter taster brewer
"""
)
_PET_FIRST = _words(
    """
tiny small little big large huge giant fat thin slim tall short lazy sleepy tired hungry thirsty
greedy happy sad grumpy moody shy brave bold timid nervous calm gentle kind mean rude polite proud
humble jealous loyal faithful clever smart wise silly foolish crazy funny witty serious curious
noisy loud talkative playful restless clumsy graceful swift fast slow fluffy furry hairy bald smooth
rough shiny dusty dirty clean muddy spotted striped speckled freckled wrinkled chubby skinny bony
muscular strong weak sick healthy blind deaf lame limping young baby newborn wild tame domestic
foreign german french spanish russian chinese japanese mexican brazilian canadian turkish persian
swiss dutch danish polish scottish welsh rescued stray pregnant famous rare common fancy plain
pretty beautiful handsome strange weird mysterious
"""
)
_PET_SECOND = _words(
    """
otter badger hamster gerbil rat mouse mole hedgehog squirrel chipmunk ferret weasel raccoon skunk
possum porcupine bat kitten cat puppy poodle beagle terrier collie hound spaniel shepherd mule pig
boar lamb ram ewe calf bull ox yak llama bison moose elk gazelle zebra giraffe elephant hippo rhino
panther leopard cheetah jaguar lynx cougar coyote jackal hyena panda koala kangaroo wombat sloth
lemur gorilla baboon chimp crow magpie sparrow finch robin canary cockatoo pelican seagull penguin
flamingo stork crane goose turkey rooster hen chick quail peacock ostrich owl woodpecker hummingbird
frog toad newt gecko iguana chameleon crocodile alligator tortoise python cobra viper goldfish guppy
carp eel shark whale octopus squid crab lobster shrimp snail slug spider scorpion beetle cricket
grasshopper ant moth butterfly dragonfly
"""
)
_FOOD_FIRST = _words(
    """
apple banana cherry grape lemon lime mango melon papaya peach pear plum strawberry raspberry
blueberry blackberry cranberry coconut apricot fig date raisin olive avocado almond cashew hazelnut
peanut pistachio pecan carrot onion garlic leek celery cabbage lettuce spinach kale broccoli
cauliflower pumpkin zucchini cucumber eggplant pepper chili radish turnip beet parsnip corn pea
lentil bean tofu seaweed basil mint parsley dill oregano thyme sage cinnamon ginger nutmeg vanilla
chocolate caramel honey butter cream yogurt egg beef pork lamb veal ham bacon chicken duck goose
turkey fish tuna cod shrimp crab lobster clam oyster squid rice oat rye quinoa noodle cheddar
mozzarella parmesan mustard ketchup vinegar curry saffron sesame sunflower
"""
)
_FOOD_SECOND = _words(
    """
soup stew salad sandwich burger pie cake cookies muffins pancakes waffles toast rolls biscuits
crackers pudding custard jelly jam marmalade syrup sauce dip spread paste salsa relish chutney
pickles chips fries wedges skewers kebabs tacos burritos nachos pizza pasta lasagna ravioli gnocchi
dumplings buns pastries tart crumble cobbler strudel doughnuts croissants bagels pretzels popcorn
cereal porridge oatmeal granola smoothie juice shake sorbet sundae sherbet casserole gratin risotto
paella sushi tempura omelet frittata quiche souffle meatballs meatloaf steak roast cutlets fillets
nuggets wings ribs strips patties fritters croquettes pot bowl platter wrap loaf bars balls brownies
truffles fudge candy toffee mousse trifle cheesecake cupcakes eclairs macaroons meringue parfait
broth chowder gumbo goulash hash slaw
"""
)

_EN_PHRASES = {
    "name": (
        ("my name is {}.", "i am called {}.", "people call me {}."),
        ("what is your name ?", "what are you called ?"),
        ("my name is {}", "people call me {}"),
        "do you like it ?",
        ("{} is a nice name", "i like the name {}"),
    ),
    "town": (
        ("i live in {}.", "my home is in {}.", "i come from {}."),
        ("where do you live ?", "where is your home ?"),
        ("i live in {}", "my home is in {}"),
        "do you know it ?",
        ("i do not know {}", "{} is new to me"),
    ),
    "job": (
        ("i work as a {}.", "my job is {}.", "i earn money as a {}."),
        ("what is your job ?", "what do you work as ?"),
        ("i work as a {}", "my job is {}"),
        "do you know one ?",
        ("i know a {} too", "i never met a {}"),
    ),
    "pet": (
        ("i have a {}.", "my pet is a {}.", "i keep a {} at home."),
        ("what is your pet ?", "which pet do you have ?"),
        ("i have a {}", "my pet is a {}"),
        "do you want one ?",
        ("a {} is cute", "i want a {} too"),
    ),
    "food": (
        ("my favorite food is {}.", "i love eating {}.", "i often cook {}."),
        ("what do you eat ?", "what is your favorite food ?"),
        ("i often eat {}", "my favorite food is {}"),
        "did you try it ?",
        ("i never tried {}", "i tried {} once"),
    ),
}


def _words_of(phrases: dict, split) -> set[str]:
    """All the words (Chinese: characters) of a table of phrasings."""
    texts = (
        text
        for groups in phrases.values()
        for group in groups
        for text in ((group,) if isinstance(group, str) else group)
    )
    return {word for text in texts for word in split(text)}


def _without(pool, *others) -> tuple[str, ...]:
    """`pool` without repetitions and without the members of `others`."""
    banned = set().union(*others)
    return tuple(word for word in dict.fromkeys(pool) if word not in banned)


_ZH_TAKEN = _words_of(_ZH_PHRASES, list) | set("你呢")
_EN_TAKEN = _words_of(_EN_PHRASES, lambda text: text.replace(".", " ").split()) | {"and", "you"}

_ZH_SURNAMES = _without(_SURNAMES, _ZH_TAKEN)
_ZH_FIRST = _without(_FIRST, _ZH_TAKEN, _ZH_SURNAMES)
_ZH_SECOND = _without(_SECOND, _ZH_TAKEN, _ZH_SURNAMES, _ZH_FIRST)
_ZH_POOLS = {"name": (_ZH_SURNAMES, _ZH_SECOND)}
_EN_POOLS = {
    "name": (_FIRST_NAMES, _LAST_NAMES),
    "town": (_TOWN_FIRST, _TOWN_SECOND),
    "job": (_JOB_FIRST, _JOB_SECOND),
    "pet": (_PET_FIRST, _PET_SECOND),
    "food": (_FOOD_FIRST, _FOOD_SECOND),
}

ZH = Language(
    name="zh",
    kinds={
        key: Kind(*phrases, *_ZH_POOLS.get(key, (_ZH_FIRST, _ZH_SECOND)))
        for key, phrases in _ZH_PHRASES.items()
    },
    back="你 呢 ？",
    comma=" ， ",
    stop=" 。 ",
    joiner="",
)
EN = Language(
    name="en",
    kinds={
        key: Kind(*phrases, *(_without(pool, _EN_TAKEN) for pool in _EN_POOLS[key]))
        for key, phrases in _EN_PHRASES.items()
    },
    back="and you ?",
    comma=" , ",
    stop=" . ",
    joiner=" ",
)
LANGUAGES = {"zh": ZH, "en": EN}
